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

	"github.com/latchkey-go/latchkey/internal/lockertest"
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

// canceledLock calls Lock, and ends its context once the call waits. It returns
// the error of the call.
func canceledLock(t *testing.T, s *sqllock.Session) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		lock, err := s.Lock(ctx, sqllock.ID(1))
		_ = lock.Unlock()
		ended <- err
	}()
	lockertest.Eventually(t, "the call waits", func() bool { return sqllock.InLine(s) == 1 })
	cancel()
	return <-ended
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
			if _, err := s.TryRLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("TryRLock before the first connection: %v, want ErrUnavailable", err)
			}
			if err := canceledLock(t, s); !errors.Is(err, sqllock.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("Lock while the database is down: %v, want ErrUnavailable and Canceled", err)
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

// A driver may give up an attempt to connect before the Session does, by a bound
// of its own. So the error names no time.
func TestDriverGivesUp(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(impatientConnector{})
	defer db.Close()
	_, err := sqllock.Open(t.Context(), db)
	if !errors.Is(err, sqllock.ErrUnavailable) || !strings.HasSuffix(fmt.Sprint(err), "the server did not answer in time") {
		t.Errorf("Open: %v", err)
	}
}

// impatientConnector is a driver that has no time for an attempt.
type impatientConnector struct{}

func (impatientConnector) Connect(context.Context) (driver.Conn, error) {
	_, err := (&net.Dialer{Deadline: time.Now().Add(-time.Hour)}).Dial("tcp", "127.0.0.1:1")
	return nil, err
}

func (impatientConnector) Driver() driver.Driver { return nil }

// Open rejects a pooler in transaction mode, and leaves no lock and no setting on
// its connections. In session mode locks exclude. OnConn proves nothing, but
// notices that it was moved to another server process.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	for _, driver := range pgtest.Drivers() {
		direct := open(t, driver, cluster.DSN(""))
		for _, size := range []int{2, 20} {
			dsn := pooler(t, cluster, "transaction", size)
			rejects(t, open(t, driver, dsn), dsn, sqllock.ErrNotExclusive, "use PerTx")
			if locks, settings := advisoryLocks(t, direct), sessions(t, direct); locks != 0 || settings != 0 {
				t.Errorf("%s, a pool of %d: the proof left %d locks, and changed settings of %d connections", driver, size, locks, settings)
			}
		}
		dsn := pooler(t, cluster, "session", 20)
		a, b := session(t, driver, dsn), session(t, driver, dsn)
		lock := mustLock(t, a, sqllock.ID(1))
		if _, err := b.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%s: TryLock of a held key through a session pool: %v", driver, err)
		}
		if err := errors.Join(lock.Unlock(), a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
		lockertest.Eventually(t, "the Sessions have ended", func() bool { return sessions(t, direct) == 0 })
		db := open(t, driver, pooler(t, cluster, "transaction", 4))
		lock = mustLock(t, sqllock.OnConn(connection(t, db)), sqllock.ID(2))
		execute(t, transaction(t, db), "SELECT 1") // occupies the server process on which the lock was acquired
		if err := lock.Unlock(); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("%s: Unlock on another server process: %v, want ErrLost", driver, err)
		}
		lockertest.Eventually(t, "the lock of the pooler's connection is free", func() bool {
			number(t, direct, terminateHolder)
			return advisoryLocks(t, direct) == 0
		})
	}
}

func TestOpenMisuse(t *testing.T) {
	t.Parallel()
	db := open(t, "pgx", pgtest.Database(t))
	for _, tt := range []struct {
		opt  sqllock.Option
		want string
	}{
		{sqllock.WithLease(time.Second), "too short"},
		{sqllock.WithLease(25 * 24 * time.Hour), "too long"},
		{sqllock.WithHeartbeat(time.Hour), "too slow"},
		{sqllock.WithHeartbeat(-1), "must be positive"},
		{sqllock.WithIdleClose(time.Second - 1), "WithIdleClose"},
		{sqllock.WithMaxHeld(0), "WithMaxHeld"},
		{sqllock.WithMaxConns(0), "WithMaxConns"},
		{sqllock.WithDialect("oracle"), "unknown dialect"},
	} {
		if _, err := sqllock.Open(t.Context(), db, tt.opt); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want an error that says %q", err, tt.want)
		}
	}
	_, err := sqllock.Open(t.Context(), db, sqllock.WithDialect(sqllock.MySQL), sqllock.WithLeaseTable())
	_, slow := sqllock.Open(t.Context(), db, sqllock.WithDialect(sqllock.SQLite), sqllock.WithHeartbeat(time.Hour))
	if err == nil || slow == nil {
		t.Errorf("options of a dialect: %v, %v", err, slow)
	}
	// Open accepts the longest heartbeat that its own error advises.
	_, err = sqllock.Open(t.Context(), db, sqllock.WithHeartbeat(time.Hour))
	_, advice, _ := strings.Cut(fmt.Sprint(err), ": use ")
	advised, err := time.ParseDuration(strings.TrimSuffix(advice, " or less"))
	if err != nil {
		t.Fatalf("no advice: %v", err)
	}
	sessionOn(t, db, sqllock.WithHeartbeat(advised))
	for begins, call := range map[string]func(){
		"Open needs":          func() { _, _ = sqllock.Open(t.Context(), nil) },
		"PerTx needs a *":     func() { sqllock.PerTx(nil) },
		"PerTx needs a lease": func() { sqllock.PerTx(db, sqllock.WithLease(time.Second)) },
		"PerTxFunc needs":     func() { sqllock.PerTxFunc(nil) },
		"OnConn needs":        func() { sqllock.OnConn(nil) },
		"WithLogger needs":    func() { sqllock.WithLogger(nil) },
		"WithIdleClose needs": func() { sqllock.WithIdleClose(0) },
	} {
		wantPanic(t, begins, "sqllock: "+begins, call)
	}
}

// Open detects a server that grants every lock, or has no session locks. Some
// servers with PostgreSQL's protocol are like that.
func TestOpenRefusesLookAlike(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		for _, name := range []string{"version()", "pg_try_advisory_lock(bigint)", "pg_advisory_unlock(bigint)"} {
			plain, _, _ := strings.Cut(name, "(")
			execute(t, db, "SET allow_system_table_mods = on; ALTER FUNCTION pg_catalog."+name+" RENAME TO own_"+plain)
		}
		instead := func(definition string) {
			execute(t, db, "SET allow_system_table_mods = on; CREATE OR REPLACE FUNCTION pg_catalog."+definition)
		}
		instead("pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
		instead("pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
		for _, version := range []string{"CockroachDB CCL v24.1.0", "PostgreSQL 11.2-YB-2.18.0.0-b0 on x86", "Something 1.0 (PostgreSQL-compatible)"} {
			instead("version() RETURNS text LANGUAGE sql AS $$ SELECT '" + version + "' $$")
			rejects(t, open(t, driver, dsn), dsn, sqllock.ErrNotExclusive, "not PostgreSQL by its version()")
		}
		rejects(t, open(t, driver, dsn), dsn, sqllock.ErrNotExclusive, "did not exclude", sqllock.WithDialect(sqllock.PostgreSQL))
		instead(`pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE plpgsql
			AS $$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '0A000'; END $$`)
		rejects(t, open(t, driver, dsn), dsn, sqllock.ErrNotExclusive, "pass WithLeaseTable()", sqllock.WithDialect(sqllock.PostgreSQL))
	})
}
