package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// rejects checks that Open on db fails with want, and that its error says what
// to change.
func rejects(t *testing.T, db *sql.DB, dsn string, want error, advice string, opts ...sqllock.Option) {
	t.Helper()
	s, err := sqllock.Open(t.Context(), db, opts...)
	if s != nil {
		_ = s.Close()
	}
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), advice) {
		t.Fatalf("Open: %v, want %q with advice about %q", err, want, advice)
	}
	tellsNothing(t, err, dsn)
}

func TestOpenRefusesStandby(t *testing.T) {
	t.Parallel()
	standby, err := pgtest.New(t).Standby()
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		dsn := standby.DSN("")
		db := open(t, driver, dsn)
		rejects(t, db, dsn, sqllock.ErrNotExclusive, "connect to the primary")
		for name, locks := range map[string]sqllock.Locker{"PerTx": sqllock.PerTx(db), "PerTxFunc": perTxFunc(db)} {
			if _, err := locks.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrNotExclusive) {
				t.Errorf("%s: %s on a standby: %v, want ErrNotExclusive", driver, name, err)
			}
		}
	}
}

// pooler starts a PgBouncer before cluster and returns the DSN through it.
func pooler(t *testing.T, cluster *pgtest.Cluster, mode string, size int) string {
	t.Helper()
	b, err := cluster.PgBouncer(mode, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b.DSN("")
}

// Open rejects a pooler in transaction mode, and leaves no lock and no setting on
// its connections.
func rejectsPooler(t *testing.T, driver string, cluster *pgtest.Cluster, size int, opts ...sqllock.Option) {
	dsn := pooler(t, cluster, "transaction", size)
	rejects(t, open(t, driver, dsn), dsn, sqllock.ErrNotExclusive, "use PerTx", opts...)
	direct := open(t, driver, cluster.DSN(""))
	if n := advisoryLocks(t, direct); n != 0 {
		t.Errorf("the proof left %d locks behind", n)
	}
	if n := sessions(t, direct); n != 0 {
		t.Errorf("the proof changed settings of %d of the pooler's connections", n)
	}
}

// A pooler with one connection has none for the second half of the proof, which
// waits for it.
func TestLongPgBouncerOfOne(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		rejectsPooler(t, driver, cluster, 1, shortLease())
	})
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	for _, driver := range pgtest.Drivers() {
		for _, size := range []int{2, 20} {
			t.Run(fmt.Sprintf("%s/transaction/%d", driver, size), func(t *testing.T) {
				rejectsPooler(t, driver, cluster, size)
			})
		}
		t.Run(driver+"/session", func(t *testing.T) {
			dsn := pooler(t, cluster, "session", 20)
			a, b := session(t, driver, dsn), session(t, driver, dsn)
			lock := mustLock(t, a, sqllock.ID(1))
			if _, err := b.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of a held key through a session pool: %v", err)
			}
			unlock(t, lock)
		})
		t.Run(driver+"/OnConn", func(t *testing.T) {
			// OnConn cannot prove anything in advance, but notices that it has
			// been moved to another server process.
			db := open(t, driver, pooler(t, cluster, "transaction", 4))
			lock := mustLock(t, sqllock.OnConn(connection(t, db)), sqllock.ID(2))
			// Occupy the server process on which the lock was acquired.
			if _, err := transaction(t, db).Exec("SELECT 1"); err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(); !errors.Is(err, sqllock.ErrLost) {
				t.Errorf("Unlock on another server process: %v, want ErrLost", err)
			}
		})
	}
}

func TestOpenMisuse(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", "postgres://127.0.0.1:1/nothing")
	tests := []struct {
		name string
		opts []sqllock.Option
		want string
	}{
		{"short lease", []sqllock.Option{sqllock.WithLease(time.Second)}, "too short"},
		{"long lease", []sqllock.Option{sqllock.WithLease(25 * 24 * time.Hour)}, "too long"},
		{"slow heartbeat", []sqllock.Option{sqllock.WithLease(10 * time.Second), sqllock.WithHeartbeat(5 * time.Second)}, "too slow"},
		{"slow heartbeat of a dialect", []sqllock.Option{sqllock.WithDialect(sqllock.SQLite), sqllock.WithHeartbeat(time.Hour)}, "too slow"},
		{"negative heartbeat", []sqllock.Option{sqllock.WithHeartbeat(-1)}, "must be positive"},
		{"idle close", []sqllock.Option{sqllock.WithIdleClose(time.Second - 1)}, "WithIdleClose"},
		{"held", []sqllock.Option{sqllock.WithMaxHeld(0)}, "WithMaxHeld"},
		{"connections", []sqllock.Option{sqllock.WithMaxConns(0)}, "WithMaxConns"},
		{"dialect", []sqllock.Option{sqllock.WithDialect("oracle")}, "unknown dialect"},
	}
	for _, tt := range tests {
		if _, err := sqllock.Open(t.Context(), db, tt.opts...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error that says %q", tt.name, err, tt.want)
		}
	}
	for name, call := range map[string]func(){
		"Open":       func() { _, _ = sqllock.Open(t.Context(), nil) },
		"PerTx":      func() { sqllock.PerTx(nil) },
		"PerTxLease": func() { sqllock.PerTx(db, sqllock.WithLease(time.Second)) },
		"PerTxFunc":  func() { sqllock.PerTxFunc(nil) },
		"OnConn":     func() { sqllock.OnConn(nil) },
		"WithLogger": func() { sqllock.WithLogger(nil) },

		"WithIdleClose": func() { sqllock.WithIdleClose(0) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "sqllock: "+strings.TrimSuffix(name, "Lease")) {
					t.Errorf("%s with nothing: panic %q", name, got)
				}
			}()
			call()
		}()
	}
}

// Open accepts the longest heartbeat that its own error advises.
func TestAdvisedHeartbeat(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		_, err := sqllock.Open(t.Context(), db, sqllock.WithHeartbeat(time.Hour))
		_, advice, _ := strings.Cut(fmt.Sprint(err), ": use ")
		advised, parseErr := time.ParseDuration(strings.TrimSuffix(advice, " or less"))
		if parseErr != nil {
			t.Fatalf("no advice in %v", err)
		}
		sessionOn(t, db, sqllock.WithHeartbeat(advised))
	})
}

func TestOpenWhileDatabaseIsDown(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			dsn := cluster.DSN("")
			if err := cluster.Stop(); err != nil {
				t.Fatal(err)
			}
			db := open(t, driver, dsn)
			rejects(t, db, dsn, sqllock.ErrUnavailable, "refused")

			s := sessionOn(t, db, sqllock.WithLazyOpen())
			_, err := s.TryLock(t.Context(), sqllock.ID(1))
			if !errors.Is(err, sqllock.ErrUnavailable) {
				t.Fatalf("TryLock while the database is down: %v, want ErrUnavailable", err)
			}
			tellsNothing(t, err, dsn)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_, err = s.Lock(ctx, sqllock.ID(1))
			cancel()
			if !errors.Is(err, sqllock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock while the database is down: %v, want ErrUnavailable and DeadlineExceeded", err)
			}
			waiter := make(chan error, 1)
			go func() {
				lock, err := s.Lock(context.Background(), sqllock.ID(2))
				_ = lock.Unlock()
				waiter <- err
			}()
			if err := cluster.StartAgain(); err != nil {
				t.Fatal(err)
			}
			if err := <-waiter; err != nil {
				t.Errorf("the call that waited while the database came up: %v", err)
			}
			servesAgain(t, s, sqllock.ID(1))
		})
	}
}

// Open ends with its context, even if the driver is stuck.
func TestOpenWithStuckDriver(t *testing.T) {
	t.Parallel()
	stuck := &stuckConnector{release: make(chan struct{})}
	db := sql.OpenDB(stuck)
	defer db.Close()
	defer close(stuck.release)
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() {
		_, err := sqllock.Open(ctx, db)
		opened <- err
	}()
	cancel()
	select {
	case err := <-opened:
		if !errors.Is(err, context.Canceled) || !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Open: %v, want context.Canceled and ErrUnavailable", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Open did not end with its context")
	}
}

// stuckConnector is a driver that ignores its context.
type stuckConnector struct{ release chan struct{} }

func (c *stuckConnector) Connect(context.Context) (driver.Conn, error) {
	<-c.release
	return nil, driver.ErrBadConn
}

func (c *stuckConnector) Driver() driver.Driver { return nil }

// replaceable renames a function of PostgreSQL in this database, so that
// instead can replace it.
func replaceable(t *testing.T, db *sql.DB, function string) {
	t.Helper()
	name, _, _ := strings.Cut(function, "(")
	execute(t, db, "SET allow_system_table_mods = on; ALTER FUNCTION pg_catalog."+function+" RENAME TO own_"+name)
}

// instead creates a function in the place of one that is replaceable.
func instead(t *testing.T, db *sql.DB, definition string) {
	t.Helper()
	execute(t, db, "SET allow_system_table_mods = on; CREATE OR REPLACE FUNCTION pg_catalog."+definition)
}

// Open detects a server that grants every lock. Some servers with PostgreSQL's
// protocol do.
func TestOpenRefusesLookAlike(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		direct := open(t, driver, dsn)
		// In this database pg_try_advisory_lock always returns true.
		for _, name := range []string{"version()", "pg_try_advisory_lock(bigint)", "pg_advisory_unlock(bigint)"} {
			replaceable(t, direct, name)
		}
		instead(t, direct, "pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
		instead(t, direct, "pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
		db := open(t, driver, dsn)
		for version, advice := range map[string]string{
			"CockroachDB CCL v24.1.0":               "this is CockroachDB, whose advisory locks do nothing: pass WithLeaseTable()",
			"PostgreSQL 11.2-YB-2.18.0.0-b0 on x86": "this is YugabyteDB",
			"Something 1.0 (PostgreSQL-compatible)": "not PostgreSQL by its version()",
		} {
			instead(t, direct, "version() RETURNS text LANGUAGE sql AS $$ SELECT '"+version+"' $$")
			rejects(t, db, dsn, sqllock.ErrNotExclusive, advice)
		}
		_, err := sqllock.Open(t.Context(), db, sqllock.WithDialect(sqllock.PostgreSQL))
		if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "did not exclude") {
			t.Errorf("Open of a server that grants every lock: %v, want ErrNotExclusive", err)
		}
	})
}

// A server may reject the request for a session lock with an error of its own.
// Open then names the server and says what to do.
func TestOpenRefusesServerWithoutSessionLocks(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		direct := open(t, driver, dsn)
		replaceable(t, direct, "pg_try_advisory_lock(bigint)")
		instead(t, direct, `pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE plpgsql
			AS $$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '0A000'; END $$`)
		rejects(t, open(t, driver, dsn), dsn, sqllock.ErrNotExclusive, "pass WithLeaseTable()")
	})
}

// WithSocket finds the socket of a driver that sqllock does not know.
func TestWithSocket(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		called := false
		s := session(t, driver, dsn, sqllock.WithSocket(func(conn any) net.Conn {
			called = conn != nil
			return nil
		}))
		if !called || s.Stats().Watched {
			t.Errorf("called with a connection: %v; watched: %v, want true and false", called, s.Stats().Watched)
		}
	})
}
