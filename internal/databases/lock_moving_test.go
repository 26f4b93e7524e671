package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A lockMover stands for a pooler in session mode with one difference: it carries
// out statements with advisory locks on background connections of its own. The
// driver sees the process id of the client's own server process.
type lockMover struct {
	driver.Connector
	moverVariant

	mu      sync.Mutex // protects the fields below
	shared  *background
	clients []*moverConn
}

// A moverVariant says what a lockMover moves, and where it lies.
type moverVariant struct {
	oneForAll bool     // one background connection for all clients, not one for each
	moves     []string // it moves a statement with one of these texts
	simple    bool     // it moves statements without arguments, which no driver prepares
	prepared  bool     // it moves all others
	hidesPID  bool     // a moved statement shows the process id of the client's own process
	pgLocks   lie
}

// A lie says which background connections pg_locks shows as the own processes
// of their clients.
type lie int

const (
	noLie        lie = iota
	ownLie           // that of the client who looks
	everyonesLie     // that of every client
)

// A background is a connection on which locks are taken.
type background struct {
	driver.Conn
	pid int64
}

// A moverConn is a client's connection through a lockMover.
type moverConn struct {
	interceptedConn // the client's own server process
	mover           *lockMover
	background      *background
	pid             int64
}

// pool opens a pool through m.
func (m *lockMover) pool(t *testing.T) *sql.DB {
	t.Helper()
	db := sql.OpenDB(m)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newLockMover(t *testing.T, driver, dsn string, v moverVariant) *lockMover {
	t.Helper()
	m := &lockMover{Connector: connector(t, lockertest.Orders{Driver: driver, DSN: dsn}), moverVariant: v}
	t.Cleanup(func() {
		if m.shared != nil {
			_ = m.shared.Close()
		}
	})
	return m
}

// Connect implements driver.Connector.
func (m *lockMover) Connect(ctx context.Context) (driver.Conn, error) {
	own, err := m.connect(ctx)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	behind := m.shared
	if behind == nil {
		if behind, err = m.connect(ctx); err != nil {
			return nil, errors.Join(err, own.Close())
		}
		if m.oneForAll {
			m.shared = behind
		}
	}
	c := &moverConn{
		interceptedConn: interceptedConn{Conn: own.Conn, of: &interceptor{intercept: unchanged}},
		mover:           m, background: behind, pid: own.pid,
	}
	m.clients = append(m.clients, c)
	return c, nil
}

// connect opens a connection, and learns its process id.
func (m *lockMover) connect(ctx context.Context) (*background, error) {
	conn, err := m.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, "SELECT pg_backend_pid()::bigint", nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	defer rows.Close()
	pid := make([]driver.Value, 1)
	if err := rows.Next(pid); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &background{conn, pid[0].(int64)}, nil
}

func (c *moverConn) Close() error {
	err := c.Conn.Close()
	if !c.mover.oneForAll {
		err = errors.Join(err, c.background.Close())
	}
	return err
}

// at returns the connection that carries out query, and the query with the lies
// of the lockMover.
func (c *moverConn) at(query string, prepared bool) (interceptedConn, string) {
	m, on := c.mover, c.interceptedConn
	if (prepared && m.prepared || !prepared && m.simple) && slices.ContainsFunc(m.moves, func(text string) bool { return strings.Contains(query, text) }) {
		on.Conn = c.background.Conn
		if m.hidesPID {
			query = backendPID.ReplaceAllString(query, fmt.Sprint(c.pid))
		}
	}
	if m.pgLocks != noLie {
		query = pgLocksAs.ReplaceAllStringFunc(query, func(found string) string {
			as := " AS pg_locks"
			if i := strings.Index(found, " AS "); i >= 0 {
				as = found[i:]
			}
			return m.lyingLocks(c) + as
		})
	}
	return on, query
}

var (
	backendPID = regexp.MustCompile(`(pg_catalog\.)?pg_backend_pid\(\)`)
	pgLocksAs  = regexp.MustCompile(`(pg_catalog\.)?pg_locks( AS \w+)?`)
)

// lyingLocks returns pg_locks with background connections replaced.
func (m *lockMover) lyingLocks(c *moverConn) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	pid := "CASE pid"
	for _, other := range m.clients {
		if other == c || m.pgLocks == everyonesLie {
			pid += fmt.Sprintf(" WHEN %d THEN %d", other.background.pid, other.pid)
		}
	}
	return "(SELECT locktype, database, classid, objid, objsubid, " + pid + " ELSE pid END AS pid, mode, granted, fastpath FROM pg_catalog.pg_locks)"
}

func (c *moverConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	on, query := c.at(query, len(args) > 0)
	return on.ExecContext(ctx, query, args)
}

func (c *moverConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	on, query := c.at(query, true)
	return on.QueryContext(ctx, query, args)
}

func (c *moverConn) Prepare(query string) (driver.Stmt, error) {
	on, query := c.at(query, true)
	return on.Conn.Prepare(query)
}

// What a lockMover moves.
var (
	tries    = []string{"pg_try_advisory_lock"}
	takes    = []string{"pg_try_advisory_lock", "pg_advisory_unlock("}
	allLocks = []string{"advisory"} // also questions to pg_locks
)

// Open detects a pooler that takes advisory locks on a connection of its own.
// Such a lock does not end with the session, and with one connection for all
// clients it excludes no client.
func TestOpenRefusesPoolerThatMovesLocks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		pooler moverVariant
	}{
		{"all, one connection", moverVariant{oneForAll: true, moves: allLocks, simple: true, prepared: true}},
		{"all, one connection, lies", moverVariant{oneForAll: true, moves: allLocks, simple: true, prepared: true, hidesPID: true, pgLocks: everyonesLie}},
		{"takes and releases, a connection each", moverVariant{moves: takes, simple: true, prepared: true}},
		{"takes and releases, hidden process", moverVariant{moves: takes, simple: true, prepared: true, hidesPID: true}},
		{"takes and releases, own lie", moverVariant{moves: takes, simple: true, prepared: true, hidesPID: true, pgLocks: ownLie}},
		{"takes only", moverVariant{moves: tries, simple: true, prepared: true, hidesPID: true, pgLocks: everyonesLie}},
		{"without arguments, takes only", moverVariant{moves: tries, simple: true}},
		{"without arguments, consistent lie", moverVariant{moves: takes, simple: true, hidesPID: true, pgLocks: everyonesLie}},
		{"prepared, one connection, hidden process", moverVariant{oneForAll: true, moves: takes, prepared: true, hidesPID: true}},
		{"prepared, a connection each, consistent lie", moverVariant{moves: takes, prepared: true, hidesPID: true, pgLocks: everyonesLie}},
	}
	for _, tt := range tests {
		for _, driver := range pgtest.Drivers() {
			t.Run(tt.name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				s, err := sqllock.Open(t.Context(), newLockMover(t, driver, dsn, tt.pooler).pool(t))
				if s != nil {
					_ = s.Close()
				}
				if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "WithLeaseTable()") && !strings.Contains(err.Error(), "did not exclude") {
					t.Fatalf("Open: %v, want ErrNotExclusive with advice", err)
				}
				advised := newLockMover(t, driver, unprepared(driver, dsn), tt.pooler).pool(t)
				mustUnlock(t, mustLock(t, session(t, advised, sqllock.WithLeaseTable()), sqllock.ID(1)))
			})
		}
	}
}
