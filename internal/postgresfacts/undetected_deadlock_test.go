package postgresfacts

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// PostgreSQL searches for a deadlock and finds none if a transaction waits for
// a lock that its own process holds on another connection. To the server that
// connection is idle, and will go on at some time. LockTx bounds the wait.
func TestPostgresMissesDeadlockThroughAProcess(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := cluster.DSN("")
		s := session(t, driver, dsn)
		key := sqllock.ID(1)
		lock := mustLock(t, s, key)

		// With log_lock_waits the server sends "still waiting" after its
		// search.
		stillWaiting := make(chan struct{}, 1)
		tx := transaction(t, openWithNotices(t, driver, dsn+"&client_min_messages=log", func(message string) {
			if strings.Contains(message, "still waiting") {
				select {
				case stillWaiting <- struct{}{}:
				default:
				}
			}
		}))
		got := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that the test fails instead of hanging
		defer cancel()
		go func() {
			_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(1)")
			got <- err
		}()
		select {
		case <-stillWaiting:
		case err := <-got:
			t.Fatalf("the transaction did not wait: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatal("the server did not search for a deadlock")
		}
		if n := number(t, open(t, driver, dsn), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"); n != 1 || len(got) != 0 {
			t.Errorf("%d sessions wait after the search, want the transaction to go on waiting", n)
		}
		unlock(t, lock) // the process's next step
		if err := <-got; err != nil {
			t.Errorf("the transaction got %v", err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		boundedByLockTx(t, s, transaction(t, open(t, driver, dsn)), key)
	}, pgtest.WithSettings(map[string]string{"deadlock_timeout": "10ms", "log_lock_waits": "on"}))
}

// boundedByLockTx checks that LockTx is rejected if its own process holds the
// key, and that the transaction goes on.
func boundedByLockTx(t *testing.T, s *sqllock.Session, tx *sql.Tx, key sqllock.Key) {
	t.Helper()
	lock := mustLock(t, s, key)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a deadlock fails the test instead of hanging
	defer cancel()
	if err := sqllock.LockTx(ctx, tx, key, 50*time.Millisecond); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("LockTx of a key of the same process: %v, want ErrHeld", err)
	}
	unlock(t, lock)
	if err := sqllock.LockTx(ctx, tx, key, time.Minute); err != nil {
		t.Errorf("LockTx afterwards: %v", err)
	}
}

// openWithNotices opens a pool that passes the server's notices to notice.
func openWithNotices(t *testing.T, driver, dsn string, notice func(message string)) *sql.DB {
	t.Helper()
	var db *sql.DB
	switch driver {
	case "pgx":
		config, err := pgx.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notice(n.Message) }
		db = stdlib.OpenDB(*config)
	case "postgres":
		connector, err := pq.NewConnector(dsn)
		if err != nil {
			t.Fatal(err)
		}
		db = sql.OpenDB(pq.ConnectorWithNoticeHandler(connector, func(n *pq.Error) { notice(n.Message) }))
	default:
		t.Fatalf("no access to the notices of driver %s", driver)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Two Sessions poll, each for the key that the other one holds. Neither waits
// in the server, so the server has no deadlock to find. Only a bound on their
// wait ends it.
func TestPostgresMissesDeadlockOfPollers(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		a, b := session(t, driver, dsn), session(t, driver, dsn)
		one, two := sqllock.ID(1), sqllock.ID(2)
		ofA, ofB := mustLock(t, a, one), mustLock(t, b, two)
		type result struct {
			lock *sqllock.Lock
			err  error
		}
		wait := func(ctx context.Context, s *sqllock.Session, key sqllock.Key) <-chan result {
			got := make(chan result, 1)
			go func() {
				lock, err := s.Lock(ctx, key)
				got <- result{lock, err}
			}()
			return got
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		bound, release := context.WithTimeout(t.Context(), time.Minute) // so that the test fails instead of hanging
		defer release()
		toA, toB := wait(ctx, a, two), wait(bound, b, one)
		polled := func(s *sqllock.Session) bool { return s.Stats().Waiting == 1 && s.Stats().Exchanges >= 10 }
		lockertest.Eventually(t, "both have polled several times", func() bool {
			if n := number(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"); n != 0 {
				t.Fatalf("%d sessions wait in the server", n)
			}
			return polled(a) && polled(b)
		})
		if len(toA)+len(toB) != 0 {
			t.Fatal("the deadlock has ended without a timeout")
		}
		cancel()
		if r := <-toA; !errors.Is(r.err, context.Canceled) {
			t.Errorf("Lock of the cancelled caller: %v, want context.Canceled", r.err)
		}
		unlock(t, ofA)
		r := <-toB
		if r.err != nil {
			t.Fatalf("Lock of the other caller: %v", r.err)
		}
		unlock(t, r.lock)
		unlock(t, ofB)
	})
}
