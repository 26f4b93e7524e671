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

// PostgreSQL looks for a deadlock and finds none where a transaction waits for a
// lock that its own process holds on another connection: for the server that
// one is idle, and will go on one day. LockTx bounds the wait.
func TestPostgresMissesDeadlockThroughAProcess(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := cluster.DSN("")
		s := session(t, driver, dsn)
		key := sqllock.ID(1)
		lock := mustLock(t, s, key)

		// With log_lock_waits the server says "still waiting" when it has looked.
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that it fails, and does not hang
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
			t.Fatal("the server did not look for a deadlock")
		}
		if n := number(t, open(t, driver, dsn), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"); n != 1 || len(got) != 0 {
			t.Errorf("%d wait after the server has looked, want the transaction to wait on", n)
		}
		giveBack(t, lock) // what the process would have done next
		if err := <-got; err != nil {
			t.Errorf("the transaction got %v", err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		boundedByLockTx(t, s, transaction(t, open(t, driver, dsn)), key)
	}, pgtest.WithSettings(map[string]string{"deadlock_timeout": "10ms", "log_lock_waits": "on"}))
}

// boundedByLockTx checks that a transaction that waits by LockTx for what its own
// process holds is refused, and goes on.
func boundedByLockTx(t *testing.T, s *sqllock.Session, tx *sql.Tx, key sqllock.Key) {
	t.Helper()
	lock := mustLock(t, s, key)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a deadlock fails, it does not hang
	defer cancel()
	if err := sqllock.LockTx(ctx, tx, key, 50*time.Millisecond); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("LockTx of a key of the same process: %v, want ErrHeld", err)
	}
	giveBack(t, lock)
	if err := sqllock.LockTx(ctx, tx, key, time.Minute); err != nil {
		t.Errorf("LockTx afterwards: %v", err)
	}
}

// openWithNotices opens a pool that gives what the server says beside its answers
// to notice.
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
		t.Fatalf("no way to the notices of driver %s", driver)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Two that ask again and again, each for what the other holds, wait in no queue
// of the server: there is nothing for it to find. Only their own bound ends it.
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
		bound, release := context.WithTimeout(t.Context(), time.Minute) // so that it fails, and does not hang
		defer release()
		toA, toB := wait(ctx, a, two), wait(bound, b, one)
		asked := func(s *sqllock.Session) bool { return s.Stats().Waiting == 1 && s.Stats().Exchanges >= 10 }
		lockertest.Eventually(t, "both have asked again and again", func() bool {
			if n := number(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"); n != 0 {
				t.Fatalf("%d wait in the server", n)
			}
			return asked(a) && asked(b)
		})
		if len(toA)+len(toB) != 0 {
			t.Fatal("a deadlock has ended by itself")
		}
		cancel()
		if r := <-toA; !errors.Is(r.err, context.Canceled) {
			t.Errorf("Lock of the one that gives up: %v, want context.Canceled", r.err)
		}
		giveBack(t, ofA)
		r := <-toB
		if r.err != nil {
			t.Fatalf("Lock of the other one: %v", r.err)
		}
		giveBack(t, r.lock)
		giveBack(t, ofB)
	})
}
