package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// wrappedConn passes every call on to another driver's connection, as tracing
// wrappers do. It has no method that returns that connection.
type wrappedConn struct {
	parent driver.Conn        // in a field, as in most wrappers; or nil
	hidden func() driver.Conn // not accessible by reflection
}

func (c wrappedConn) inner() driver.Conn {
	if c.parent != nil {
		return c.parent
	}
	return c.hidden()
}

func (c wrappedConn) Prepare(query string) (driver.Stmt, error) { return c.inner().Prepare(query) }
func (c wrappedConn) Close() error                              { return c.inner().Close() }

//lint:ignore SA1019 of the interface
func (c wrappedConn) Begin() (driver.Tx, error) { return c.inner().Begin() }

func (c wrappedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.inner().(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c wrappedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.inner().(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c wrappedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.inner().(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c wrappedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.inner().(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c wrappedConn) ResetSession(ctx context.Context) error {
	return c.inner().(driver.SessionResetter).ResetSession(ctx)
}

func (c wrappedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.inner().(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// wrapper is a Connector of wrappedConns.
type wrapper struct {
	driver.Connector
	hides bool
}

func (w wrapper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	switch {
	case err != nil:
		return nil, err
	case w.hides:
		return wrappedConn{hidden: func() driver.Conn { return c }}, nil
	}
	return wrappedConn{parent: c}, nil
}

// lib/pq with a hidden connection is not among them. It ignores its context
// while the network is silent, and nothing else can stop it.
var wrappedDrivers = []struct {
	name, driver string
	hides        bool
}{
	{"pgx", "pgx", false},
	{"pq", "postgres", false},
	{"pgx out of reach", "pgx", true},
}

// connectorOf returns the Connector of a driver.
func connectorOf(t *testing.T, name, dsn string) (connector driver.Connector) {
	t.Helper()
	var err error
	if name == "pgx" {
		connector, err = stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(dsn)
	} else {
		connector, err = pq.NewConnector(dsn)
	}
	if err != nil {
		t.Fatal(err)
	}
	return connector
}

// openWrapped is open with a wrapper around the driver.
func openWrapped(t *testing.T, name, dsn string, hides bool) *sql.DB {
	t.Helper()
	db := sql.OpenDB(wrapper{connectorOf(t, name, dsn), hides})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A Session behind a wrapper serves again after a cut. Its pool has no spare
// connection for those that stay silent.
func TestWrappedDriverAfterCut(t *testing.T) {
	for _, tt := range wrappedDrivers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, dsn := startSilentProxy(t, pgtest.Database(t), "")
			db := openWrapped(t, tt.driver, dsn, tt.hides)
			db.SetMaxOpenConns(2)
			s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(2*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			lock := take(t, s, 0, 1)[0]
			n.cut()
			<-lock.Context().Done()
			lockertest.Eventually(t, "attempts to connect fail", func() bool {
				_, err := s.TryLock(t.Context(), sqllock.ID(0))
				return err != nil
			})
			n.heal()
			servesAgain(t, s, sqllock.ID(0))
		})
	}
}

// A connection that falls silent while Open sets it up is closed, even if the
// driver ignores its context. It does not keep its place in the pool.
func TestOpenMeetsSilence(t *testing.T) {
	for _, tt := range wrappedDrivers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, dsn := startSilentProxy(t, pgtest.Database(t), "pg_advisory_unlock_all")
			db := openWrapped(t, tt.driver, dsn, tt.hides)
			if s, err := sqllock.Open(t.Context(), db); !errors.Is(err, sqllock.ErrUnavailable) {
				if err == nil {
					_ = s.Close()
				}
				t.Fatalf("Open: %v, want ErrUnavailable", err)
			}
			lockertest.Eventually(t, "no connection of the pool is in use", func() bool { return db.Stats().InUse == 0 })
		})
	}
}

// A wrapper that hides a pool of the driver's own does not keep a session
// alive.
func TestCloseOnWrappedDriverPool(t *testing.T) {
	for _, hides := range []bool{false, true} {
		dsn := pgtest.Database(t)
		pool, err := pgxpool.New(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		db := sql.OpenDB(wrapper{stdlib.GetPoolConnector(pool), hides})
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(0)
		if _, err := db.Exec("CREATE TABLE orders (id int)"); err != nil {
			t.Fatal(err)
		}
		s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		take(t, s, 0, 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		leavesNothing(t, db, dsn)
	}
}
