package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/sqllock"
)

const (
	// placesOfUnlimited is how many transactions a pool without a limit
	// carries: PostgreSQL's default for all connections of a server.
	placesOfUnlimited = 100

	// placesOfHidden is the same for a pool whose limit cannot be seen. The
	// smallest default of a pgxpool.Pool is 4.
	placesOfHidden = 3
)

// A knownPool is what all Middlewares of a process together know of one pool,
// and use of it.
//
// Invariant: places has an element for each transaction of an idempotent
// request that has, or may have, a connection of the pool. It has less room
// than the pool has connections. So a handler that asks the pool for another
// one gets it in time, and its transaction ends. A pool of one connection
// carries one, which suits a handler that uses only the transaction.
type knownPool struct {
	kind   *kind
	places chan struct{}
}

// pools has an *atomic.Pointer[knownPool] for each pool of the process, by
// weak.Pointer[sql.DB]. A pool that is garbage-collected leaves no entry.
var pools sync.Map

func knownOf(db *sql.DB) *atomic.Pointer[knownPool] {
	pool := weak.Make(db)
	known, loaded := pools.LoadOrStore(pool, new(atomic.Pointer[knownPool]))
	if !loaded {
		runtime.AddCleanup(db, func(pool weak.Pointer[sql.DB]) { pools.Delete(pool) }, pool)
	}
	return known.(*atomic.Pointer[knownPool])
}

// pool returns what is known of the pool. The first requests ask the pool, and
// agree on one response; a pool does not change its kind.
func (s *store) pool(ctx context.Context) (*knownPool, error) {
	if known := s.known.Load(); known != nil {
		return known, nil
	}
	known, err := dbconn.Within(ctx, s.timeout(claimTimeout), s.ask)
	if err != nil {
		return nil, noTx(err)
	}
	s.known.CompareAndSwap(nil, known)
	return s.known.Load(), nil
}

// ask asks the pool, after a check of its table.
func (s *store) ask(ctx context.Context) (known *knownPool, err error) {
	conn, err := dbconn.Live(ctx, s.db)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	kind, err := kindOn(ctx, conn)
	if err == nil {
		err = checkColumns(ctx, conn, kind.dialect)
	}
	if err == nil && kind.check != nil {
		err = kind.check(ctx, conn)
	}
	if err != nil {
		dbconn.Destroy(conn, "")
		return nil, err
	}
	places := placesOfUnlimited
	switch size := s.db.Stats().MaxOpenConnections; {
	case kind.oneWriter:
		places = 1
	case size > 0:
		places = max(1, size-1)
	case dbconn.IsOfPool(conn):
		places = placesOfHidden
	}
	return &knownPool{kind, make(chan struct{}, places)}, nil
}

// checkColumns checks that the table, if there is one, has the columns of this
// version.
func checkColumns(ctx context.Context, conn *sql.Conn, d sqllock.Dialect) error {
	err := dialect.CheckTables(ctx, conn, string(d), "", Schema(d), "idempotency.Schema")
	switch code := errcode.Of(err); {
	case code == errcode.InvalidTable:
		return mistakeOf(errSetup, err)
	case err != nil && code == "" && isAlive(ctx, conn):
		return mistakeOf(errDriver, err)
	}
	return err
}

var errUnsupported = fmt.Errorf("%w: it is none of PostgreSQL, MySQL, MariaDB, TiDB and SQLite: pass idempotency.New a pool of one of them", errSetup)

// kindOn returns the kind of database that conn is connected to. Others that
// only speak the protocol of one of them are not supported. Nor is a database
// that understands no question, if its connection is alive.
func kindOn(ctx context.Context, conn *sql.Conn) (*kind, error) {
	system, _, err := choose.Detect(ctx, conn)
	switch {
	case err != nil && errcode.Of(err) == "" && isAlive(ctx, conn):
		return nil, errUnsupported
	case err != nil:
		return nil, err
	case system == choose.PostgreSQL:
		return postgres, nil
	case system == choose.MySQL:
		return mysql, nil
	case system == choose.TiDB:
		return tidb, nil
	case system == choose.SQLite:
		return sqlite, nil
	}
	return nil, errUnsupported
}

// isAlive reports whether conn carries out a statement. A ping would not say: a
// wrapper of a driver may have none.
func isAlive(ctx context.Context, conn *sql.Conn) bool {
	_, err := conn.ExecContext(ctx, "SELECT 1")
	return err == nil
}

// take takes a place, or returns why none was free in time, and what to change.
func (p *knownPool) take(ctx context.Context) error {
	select {
	case p.places <- struct{}{}:
		return nil
	case <-ctx.Done():
	}
	return fmt.Errorf("%w: idempotent requests have all %d connections of the pool that they may use:"+
		" have handlers use the transaction of idempotency.Tx instead of the pool, and be shorter on SQLite, which has one writer;"+
		" elsewhere raise SetMaxOpenConns, which a pgxpool.Pool needs too", sqllock.ErrUnavailable, cap(p.places))
}
