package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// fenced is a database with the fence's table and one that the work writes to.
func fenced(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := open(t, driver, dsn)
	execute(t, db, sqllock.FenceSchema)
	execute(t, db, "CREATE TABLE work (who text)")
	return db
}

func execute(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%.40s…: %v", query, err)
	}
}

// fencedWork writes who, behind the fence, and commits whatever the fence has
// said, as a careless caller would. It returns the fence's error.
func fencedWork(t *testing.T, ctx context.Context, db *sql.DB, lock *sqllock.Lock, who string) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fenceErr := sqllock.Fence(ctx, tx, lock)
	_, writeErr := tx.Exec("INSERT INTO work VALUES ($1)", who)
	commitErr := tx.Commit()
	if fenceErr == nil && (writeErr != nil || commitErr != nil) {
		t.Errorf("%s: past the fence: write %v, commit %v", who, writeErr, commitErr)
	}
	if fenceErr != nil && (writeErr == nil || commitErr == nil) {
		t.Errorf("%s: the fence said %v; write %v, commit %v, want errors of both", who, fenceErr, writeErr, commitErr)
	}
	return fenceErr
}

// written reports whether who's work is in the database.
func written(t *testing.T, db *sql.DB, who string) bool {
	t.Helper()
	return number(t, db, "SELECT count(*) FROM work WHERE who = $1", who) > 0
}

func mustLock(t *testing.T, s *sqllock.Session, key sqllock.Key) *sqllock.Lock {
	t.Helper()
	lock, err := s.TryLock(t.Context(), key)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return lock
}

// unaware are options of a Session that notices nothing for minutes: neither by its
// socket nor by a heartbeat.
func unaware() []sqllock.Option {
	return []sqllock.Option{sqllock.WithLease(time.Hour), sqllock.WithSocket(func(any) net.Conn { return nil })}
}

func TestFenceStopsStaleHolder(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		key := sqllock.Namespace("fence").Key("user-1")
		stale := mustLock(t, session(t, driver, dsn, unaware()...), key)
		if err := fencedWork(t, t.Context(), db, stale, "first"); err != nil {
			t.Fatalf("Fence: %v", err)
		}
		number(t, db, "SELECT pg_terminate_backend(("+sessionPID+"))::int")
		later := session(t, driver, dsn)
		servesAgain(t, later, key)
		lock := mustLock(t, later, key)
		if err := fencedWork(t, t.Context(), db, lock, "second"); err != nil {
			t.Fatalf("Fence of the later holder: %v", err)
		}
		if err := stale.Err(); err != nil {
			t.Fatalf("the stale holder knows already: %v", err)
		}
		for range 2 {
			if err := fencedWork(t, t.Context(), db, stale, "stale"); err != sqllock.ErrFenced {
				t.Errorf("Fence of the stale holder: %v, want ErrFenced", err)
			}
		}
		if written(t, db, "stale") {
			t.Error("the stale holder's work is in the database")
		}
		if err := fencedWork(t, t.Context(), db, lock, "second again"); err != nil {
			t.Errorf("Fence of the holder again: %v", err)
		}
	})
}

// A stale holder that was never fenced finds out when it asks for its token.
func TestFenceFindsLoss(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn, unaware()...), sqllock.ID(1))
		number(t, db, "SELECT pg_terminate_backend(("+sessionPID+"))::int")
		if err := fencedWork(t, t.Context(), db, lock, "lost"); err != sqllock.ErrLost {
			t.Errorf("Fence: %v, want ErrLost", err)
		}
		if err := lock.Err(); err != sqllock.ErrLost {
			t.Errorf("Err after it: %v, want ErrLost", err)
		}
		if written(t, db, "lost") {
			t.Error("the work is in the database")
		}
	})
}

func TestFenceErrors(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		s := session(t, driver, dsn)
		released := mustLock(t, s, sqllock.ID(1))
		if err := released.Unlock(); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		perTx, err := sqllock.PerTx(db).TryLock(t.Context(), sqllock.ID(2))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = perTx.Unlock() }()
		memory, err := sqllock.NewMemory().TryLock(t.Context(), sqllock.ID(3))
		if err != nil {
			t.Fatal(err)
		}
		drawn := mustLock(t, s, sqllock.ID(4))
		if err := fencedWork(t, t.Context(), db, drawn, "drawn"); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			ctx  context.Context
			lock *sqllock.Lock
			want error
			text string
		}{
			{"given back", t.Context(), released, sqllock.ErrReleased, ""},
			{"no lock", t.Context(), nil, sqllock.ErrUnavailable, ""},
			{"ended context, no token", ended, mustLock(t, s, sqllock.ID(5)), context.Canceled, ""},
			{"ended context, a token", ended, drawn, context.Canceled, ""},
			{"PerTx", t.Context(), perTx, nil, "only the lock of a Session"},
			{"Memory", t.Context(), memory, nil, "only the lock of a Session"},
		} {
			err := fencedWork(t, tt.ctx, db, tt.lock, tt.name)
			if err == nil || (tt.want != nil && !errors.Is(err, tt.want)) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: %v, want %v %s", tt.name, err, tt.want, tt.text)
			}
			if written(t, db, tt.name) {
				t.Errorf("%s: the work is in the database", tt.name)
			}
		}
		execute(t, db, "DROP TABLE latchkey_fence")
		err = fencedWork(t, t.Context(), db, drawn, "no table")
		if err == nil || !strings.Contains(err.Error(), "FenceSchema") || stateOf(err) != "42P01" {
			t.Errorf("without the table: %v, want one that names FenceSchema, with SQLSTATE 42P01", err)
		}
		if err := drawn.Err(); err != nil {
			t.Errorf("a fence that failed in the caller's transaction ended the lock: %v", err)
		}
	})
}

func stateOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

// A serialization failure is the transaction's, not the lock's.
func TestFenceSerializationFailure(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		if err := fencedWork(t, t.Context(), db, lock, "first"); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT 1 FROM work"); err != nil { // before the fence: the snapshot is older than it
			t.Fatal(err)
		}
		if err := fencedWork(t, t.Context(), db, lock, "second"); err != nil {
			t.Fatal(err)
		}
		if err := sqllock.Fence(t.Context(), tx, lock); stateOf(err) != "40001" || errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence: %v, want SQLSTATE 40001", err)
		}
		if err := fencedWork(t, t.Context(), db, lock, "tried again"); err != nil {
			t.Errorf("tried again: %v", err)
		}
	})
}

// A fenced transaction of a key waits for the one before it, so that it reads
// what that has written.
func TestFenceSerializes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		first := transaction(t, db)
		if err := sqllock.Fence(t.Context(), first, lock); err != nil {
			t.Fatal(err)
		}
		second := transaction(t, db)
		passed := make(chan error, 1)
		go func() { passed <- sqllock.Fence(t.Context(), second, lock) }()
		lockertest.Eventually(t, "the second waits for the first", func() bool {
			return number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 1
		})
		if _, err := first.Exec("INSERT INTO work VALUES ('first')"); err != nil {
			t.Fatal(err)
		}
		if err := first.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-passed; err != nil {
			t.Fatal(err)
		}
		var n int
		if err := second.QueryRow("SELECT count(*) FROM work").Scan(&n); err != nil || n != 1 {
			t.Errorf("the second sees %d rows, %v; want 1", n, err)
		}
	})
}

// The fence's row of another system says nothing about this one.
func TestFenceReplacesOtherSystem(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		if err := fencedWork(t, t.Context(), db, lock, "first"); err != nil {
			t.Fatal(err)
		}
		execute(t, db, "UPDATE latchkey_fence SET system = system + 1, timeline = timeline + 5, lsn = lsn + 5")
		if err := fencedWork(t, t.Context(), db, lock, "restored elsewhere"); err != nil {
			t.Errorf("Fence: %v", err)
		}
		execute(t, db, "UPDATE latchkey_fence SET lsn = lsn + 1")
		if err := fencedWork(t, t.Context(), db, lock, "stale"); err != sqllock.ErrFenced {
			t.Errorf("Fence: %v, want ErrFenced", err)
		}
		execute(t, db, "UPDATE latchkey_fence SET timeline = timeline + 1, lsn = 1")
		if err := fencedWork(t, t.Context(), db, lock, "older timeline"); err != sqllock.ErrFenced {
			t.Errorf("Fence after a failover: %v, want ErrFenced", err)
		}
	})
}

// All transactions of one lock have one token, however many ask at once, and
// many locks share a statement.
func TestFenceTogether(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		s := session(t, driver, dsn)
		locks := take(t, s, 0, 8)
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if err := fencedWork(t, t.Context(), db, locks[i%len(locks)], "together"); err != nil {
					t.Errorf("Fence: %v", err)
				}
			})
		}
		wg.Wait()
		if n := number(t, db, "SELECT count(*) FROM work"); n != 64 {
			t.Errorf("%d transactions were committed, want 64", n)
		}
	})
}

// The tokens of a key rise with its holders: in one session, across sessions,
// across a crash and across a failover.
func TestTokensRise(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, primary *pgtest.Cluster) {
		db := fenced(t, driver, primary.DSN(""))
		var last string
		rises := func(t *testing.T, db *sql.DB, s *sqllock.Session, what string) {
			t.Helper()
			lock := mustLock(t, s, sqllock.ID(1))
			defer func() { _ = lock.Unlock() }()
			if err := fencedWork(t, t.Context(), db, lock, what); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			var token string
			if err := db.QueryRow("SELECT format('%s %s', lpad(timeline::text, 20, '0'), lpad(lsn::text, 20, '0')) FROM latchkey_fence").Scan(&token); err != nil {
				t.Fatal(err)
			}
			if token <= last {
				t.Fatalf("%s: token %s after %s", what, token, last)
			}
			last = token
		}
		a, b := session(t, driver, primary.DSN("")), session(t, driver, primary.DSN(""))
		for range 20 {
			rises(t, db, a, "one session")
			rises(t, db, b, "the other session")
		}
		for range 3 {
			if err := primary.Restart(true); err != nil {
				t.Fatal(err)
			}
			servesAgain(t, a, sqllock.ID(2))
			lockertest.Eventually(t, "the pool has noticed", func() bool { return db.Ping() == nil })
			rises(t, db, a, "after a crash")
		}
		standby, err := primary.Standby()
		if err != nil {
			t.Fatal(err)
		}
		if err := standby.Promote(); err != nil {
			t.Fatal(err)
		}
		there := open(t, driver, standby.DSN(""))
		rises(t, there, session(t, driver, standby.DSN("")), "after a failover")

		// Split brain: a holder on the old primary goes on, and its token is older
		// however much the old primary has written since.
		old := mustLock(t, a, sqllock.ID(1))
		execute(t, db, "INSERT INTO work SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
		if err := fencedWork(t, t.Context(), there, old, "old primary"); err != sqllock.ErrFenced {
			t.Errorf("a holder of the old primary, on the new one: %v, want ErrFenced", err)
		}
	})
}
