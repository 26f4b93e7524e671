package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// withTables opens a database with the tables, on a server of its own.
func withTables(t *testing.T, options ...string) (lockertest.Orders, *sql.DB) {
	t.Helper()
	o := lockertest.Orders{Driver: "mysql", DSN: mariadbtest.New(t, options...).Database(t)}
	db := open(t, o.Driver, o.DSN+"?multiStatements=true")
	create(t, db, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL))
	execute(t, db, "CREATE TABLE work (who INT)")
	return o, db
}

// A Fence fails soon if it has to wait. No lock is lost by that, and it succeeds
// when the table is free.
func TestLongMySQLSideTxsThatWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, block, unblock string }{
		{"a backup's lock", "FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES"},
		{"a lock on the rows", "BEGIN; SELECT * FROM latchkey_tokens FOR UPDATE", "ROLLBACK"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o, db := withTables(t)
			const lease = 10 * time.Second
			s := process(t, o, sqllock.WithLease(lease))
			innocent, fenced := awaitLock(t, s, sqllock.ID(1)), awaitLock(t, s, sqllock.ID(2))
			blocker := mustConn(t, db)
			execute(t, blocker, tt.block)
			for began := time.Now(); time.Since(began) < 2*lease; {
				if err := fencedWork(t, db, fenced, 1); err == nil {
					t.Fatal("Fence did not fail")
				}
				if err := innocent.Err(); err != nil {
					t.Fatalf("a lock that needs no table: %v", err)
				}
			}
			execute(t, blocker, tt.unblock)
			lockertest.Eventually(t, "Fence succeeds", func() bool { return fencedWork(t, db, fenced, 2) == nil })
			if losses := s.Stats().Losses; losses != 0 {
				t.Errorf("%d losses", losses)
			}
		})
	}
}

// A process that is frozen while it draws a token does not keep all others from
// theirs until its lease ends.
func TestLongMySQLFrozenWithAToken(t *testing.T) {
	t.Parallel()
	o, db := withTables(t, "--idle-transaction-timeout=3600")
	counted, thawed := make(chan struct{}), make(chan struct{})
	freeze := sync.OnceFunc(func() {
		close(counted)
		<-thawed
	})
	thaw := sync.OnceFunc(func() { close(thawed) })
	frozen := intercepted(t, o, func(query string, carryOut func() error) error {
		err := carryOut()
		if strings.Contains(query, "UPDATE") && strings.Contains(query, "latchkey_tokens") {
			freeze()
		}
		return err
	})
	a, b := mustLock(t, session(t, frozen, sqllock.WithLease(20*time.Second)), sqllock.ID(1)), mustLock(t, session(t, db), sqllock.ID(2))
	t.Cleanup(thaw)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	ended := make(chan error, 1)
	go func() { ended <- sqllock.Fence(context.Background(), tx, a) }()
	select {
	case <-counted:
	case err := <-ended:
		t.Fatalf("no token was drawn: %v", err)
	}
	for fencedWork(t, db, b, 2) != nil && a.Err() == nil {
	}
	if err := a.Err(); err != nil {
		t.Errorf("no Fence beside a frozen process before its locks were lost: %v", err)
	}
	thaw()
	<-ended
}

// Fence reports a pool that has no other connection for a token.
func TestMySQLSideTxWithoutConnection(t *testing.T) {
	t.Parallel()
	o := mariadb(t)
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(2)
	lock := mustLock(t, session(t, db), sqllock.ID(1))
	mustConn(t, db)
	if err := fencedWork(t, open(t, o.Driver, o.DSN), lock, 1); err == nil || !strings.Contains(err.Error(), "no connection of the pool") {
		t.Errorf("Fence: %v", err)
	}
	if err := lock.Err(); err != nil {
		t.Errorf("the lock: %v", err)
	}
}

// An election begins no term while no connection can be made that draws its
// token. The token would look older than those of the terms before.
func TestMySQLNoTermWithoutToken(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]sqllock.Option{"GET_LOCK": nil, "rows": {sqllock.WithLeaseTable()}} {
		o := mariadb(t)
		gate := &gate{Connector: connector(t, o), granted: make(chan struct{})}
		db := sql.OpenDB(gate)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(-1)
		s := session(t, db, append(options, sqllock.WithLease(20*time.Second))...) // with its bounds of a second
		tokens := make(chan string, 1)
		c := election.New(closesGate{s, gate}, sqllock.ID(2))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- c.Run(ctx, func(ctx context.Context) error {
				select {
				case tokens <- c.Status().Token:
				default:
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		<-gate.granted
		lockertest.Eventually(t, "the status says why there is no term", func() bool {
			return errors.Is(c.Status().Err, sqllock.ErrUnavailable) || len(tokens) > 0
		})
		gate.closed.Store(false)
		if token := <-tokens; token == "" {
			t.Errorf("%s: a term began without its token", name)
		}
		cancel()
		<-ended
	}
}

// A gate is a Connector to which servers can be made to refuse connections.
type gate struct {
	driver.Connector
	closed  atomic.Bool
	once    sync.Once     // closes it
	granted chan struct{} // is closed then
}

func (g *gate) Connect(ctx context.Context) (driver.Conn, error) {
	if g.closed.Load() {
		return nil, syscall.ECONNREFUSED
	}
	return g.Connector.Connect(ctx)
}

// closesGate closes its gate once a caller that waits has the first lock.
type closesGate struct {
	*sqllock.Session
	gate *gate
}

func (c closesGate) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	lock, err := c.Session.Lock(ctx, key)
	if err == nil {
		c.gate.once.Do(func() {
			c.gate.closed.Store(true)
			close(c.gate.granted)
		})
	}
	return lock, err
}

// Settings and transactions that the users of a pool have left on its
// connections do not affect tokens. Their work is not committed.
func TestMySQLSideTxsOnUsedConnections(t *testing.T) {
	t.Parallel()
	for _, options := range []string{
		"", "?autocommit=0", "?sql_safe_updates=1", "?completion_type=1", "?completion_type=2",
		"?tx_isolation=%27SERIALIZABLE%27", "?tx_isolation=%27READ-UNCOMMITTED%27",
		"?sql_mode=%27EMPTY_STRING_IS_NULL%27", "?sql_mode=%27ORACLE%27", "?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27", "?tx_read_only=1",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			o := mariadb(t)
			look := open(t, o.Driver, o.DSN)
			create(t, look, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL), []string{"CREATE TABLE work (who INT)"})
			left := open(t, o.Driver, o.DSN+options)
			if begun := []string{"START TRANSACTION", "INSERT INTO work VALUES (1)"}; strings.Contains(options, "read_only") {
				leaveOpen(t, left, begun[0])
			} else {
				leaveOpen(t, left, begun...)
			}
			a, b := connectTo(t, left, false), connect(t, o)
			left.SetMaxIdleConns(1) // for the tokens of a
			execute(t, left, "SET SESSION idle_write_transaction_timeout = 12345")
			var last dialect.Token
			for _, s := range []dialect.Session{a, b, a, b} {
				token, err := s.Token()
				if err != nil {
					t.Fatalf("Token: %v", err)
				}
				if !last.Before(token) {
					t.Errorf("token %v after %v", token, last)
				}
				last = token
			}
			if n := number(t, look, "SELECT count(*) FROM work"); n > 0 {
				t.Errorf("%d rows of forgotten work are committed", n)
			}
			if n := number(t, left, "SELECT @@SESSION.idle_write_transaction_timeout"); n != 12345 {
				t.Errorf("idle_write_transaction_timeout is %d afterwards", n)
			}
		})
	}
}

// leaveOpen runs statements on three connections of db and returns the
// connections to the pool.
func leaveOpen(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	db.SetMaxIdleConns(3)
	db.SetMaxOpenConns(3)
	var conns []*sql.Conn
	for range 3 {
		conn, err := db.Conn(t.Context())
		must(t, err)
		conns = append(conns, conn)
		for _, s := range statements {
			execute(t, conn, s)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// A server may end idle transactions soon. That does not end a session on a
// connection whose last user left a transaction open.
func TestLongMySQLIdleTransactionTimeout(t *testing.T) {
	t.Parallel()
	o, _ := withTables(t, "--idle-transaction-timeout=1")
	db := open(t, o.Driver, o.DSN)
	leaveOpen(t, db, "START TRANSACTION")
	s := session(t, db, sqllock.WithLease(time.Minute))
	lock := mustLock(t, s, sqllock.ID(1))
	select {
	case <-lock.Context().Done():
		t.Errorf("the lock: %v", context.Cause(lock.Context()))
	case <-time.After(2500 * time.Millisecond):
	}
	if _, err := process(t, o).TryLock(t.Context(), sqllock.ID(1)); err != sqllock.ErrHeld {
		t.Errorf("TryLock of another: %v, want ErrHeld", err)
	}
}
