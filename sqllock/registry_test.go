package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// registering opens a Session that writes into a registry, with a short
// heartbeat.
func registering(t *testing.T, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	return session(t, driver, dsn, append([]sqllock.Option{sqllock.WithRegistry(""), sqllock.WithHeartbeat(20 * time.Millisecond)}, opts...)...)
}

func registry(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := open(t, driver, dsn)
	create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
	return db
}

// registration returns what the registry says of key, which is held. It returns
// the zero Registration if there is none.
func registration(t *testing.T, db *sql.DB, key sqllock.Key) (r lockwatch.Registration) {
	t.Helper()
	s, err := lockwatch.Inspect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range s.Holders {
		if h.Key.Int64() == key.Int64() && h.Registration != nil {
			return *h.Registration
		}
	}
	return r
}

// watch runs Watch on db until the test ends, and passes its findings to
// report.
func watch(t *testing.T, db *sql.DB, report func(lockwatch.Finding), opts ...lockwatch.WatchOption) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- lockwatch.Watch(ctx, db, report, append([]lockwatch.WatchOption{lockwatch.WithInterval(time.Millisecond)}, opts...)...)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
}

// The registry shows the locks and the waiters of a Session from the next
// heartbeat on, also under load. A name is there only if the lock was given one.
// The entry ends with the lock.
func TestRegistryIsWritten(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn, sqllock.WithHolder(`the "worker" o'clock \ 7`))
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() { // a load, under which no heartbeat would be due otherwise
			for ctx.Err() == nil {
				lock, _ := s.TryLock(ctx, sqllock.ID(10))
				_ = lock.Unlock()
			}
		})
		plain, named, read := sqllock.Namespace("registry").Key("secret"), sqllock.Pair(-3, 4), sqllock.ID(-5)
		lock, with := mustLock(t, s, plain), mustLock(t, s, named)
		with.SetName("it's a \\ name\x00" + strings.Repeat("ü", 200))
		if _, err := s.TryRLock(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "all three are registered", func() bool {
			return registration(t, db, named).Name != "" && registration(t, db, plain).Session != 0 && registration(t, db, read).Session != 0
		})
		h := registration(t, db, named)
		if !strings.HasPrefix(h.Name, "it's a \\ name?üü") || len(h.Name) > 200 || h.Holder != `the "worker" o'clock \ 7` {
			t.Errorf("name %q, holder %q", h.Name, h.Holder)
		}
		before := registration(t, db, plain)
		if before.Name != "" || before.Namespace != "registry" {
			t.Errorf("a lock without a name: name %q, namespace %q", before.Name, before.Namespace)
		}
		lockertest.Eventually(t, "heartbeats go on", func() bool { return registration(t, db, plain).Heartbeat.After(before.Heartbeat) })
		if after := registration(t, db, plain); after.Acquired.Sub(before.Acquired).Abs() > time.Minute || !after.Expires.After(after.Heartbeat) {
			t.Errorf("acquired %v, then %v; expires %v", before.Acquired, after.Acquired, after.Expires)
		}

		once, unbindOnce := with.Bind(ctx)
		defer unbindOnce()
		bound, unbind := with.Bind(once) // a context may carry a lock twice, and the caller counts once
		defer unbind()
		for _, ctx := range []context.Context{ctx, ctx, bound} {
			calls.Go(func() { _, _ = s.Lock(ctx, plain) })
		}
		calls.Go(func() { _, _ = s.LockAll(bound, sqllock.ID(77), plain) })
		calls.Go(func() { _, _ = s.LockAny(bound, plain) })
		calls.Go(func() { _, _ = s.LockAny(bound, plain, with.Key()) })                              // it waits for neither in particular, so it is in no cycle
		elsewhere, unbindElsewhere := mustLock(t, session(t, driver, dsn), sqllock.ID(99)).Bind(ctx) // of another Session: this one cannot know that it is in the same database
		defer unbindElsewhere()
		calls.Go(func() { _, _ = s.Lock(elsewhere, plain) })
		lockertest.Eventually(t, "the waiters are registered, with the locks that they hold", func() bool {
			return number(t, db, "SELECT count(*) FROM latchkey_waits WHERE held_space = -1 AND waiters = 4") == 1 &&
				number(t, db, "SELECT coalesce(sum(waiters), 0) FROM latchkey_waits WHERE held_space = 1") == 4
		})
		cancel()
		calls.Wait()
		unlock(t, lock)
		lockertest.Eventually(t, "no caller waits, and one lock less is held", func() bool {
			return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 && number(t, db, "SELECT count(*) FROM latchkey_heartbeats") == 2
		})
	})
}

// cycles returns the cycles of waits in db.
func cycles(t *testing.T, db *sql.DB) []lockwatch.Cycle {
	t.Helper()
	s, err := lockwatch.Inspect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return s.Cycles()
}

// Two callers each hold the key that the other one waits for, in one Session or
// in two. PostgreSQL cannot see this cycle. It is certain all the same. It ends
// with a lock of it, although the lock's caller waits on.
func TestRegistryShowsCyclesOfPollers(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		one, two := registering(t, driver, dsn), registering(t, driver, dsn)
		for name, sessions := range map[string][2]*sqllock.Session{"one Session": {one, one}, "two Sessions": {one, two}} {
			a, b := sqllock.Namespace(name).Key("a"), sqllock.Namespace(name).Key("b")
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			locks := [2]*sqllock.Lock{mustLock(t, sessions[0], a), mustLock(t, sessions[1], b)}
			for i, lock := range locks {
				bound, unbind := lock.Bind(ctx)
				defer unbind()
				waiting.Go(func() {
					lock, _ := sessions[i].Lock(bound, locks[1-i].Key())
					<-ctx.Done()
					_ = lock.Unlock()
				})
			}
			lockertest.Eventually(t, name+": a cycle", func() bool {
				return len(cycles(t, db)) > 0
			})
			unlock(t, locks[0])
			lockertest.Eventually(t, name+": the cycle has ended", func() bool { return len(cycles(t, db)) == 0 })
			cancel()
			waiting.Wait()
			unlock(t, locks[1])
		}
	})
}

// LockTx under a Session's lock waits for that very lock. PostgreSQL does not see
// that, and the registry does. In a transaction of another database the key is
// another lock. A lock inside that has ended changes nothing. After the wait the
// transaction can be used.
func TestRegistryShowsLockTx(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn)
		a := sqllock.Pair(4, -2)
		lock := mustLock(t, s, a)
		other := pgtest.Database(t)
		elsewhere := registry(t, driver, other)
		mustLock(t, session(t, driver, other), a)
		bound, unbind := lock.Bind(t.Context())
		defer unbind()
		ended := mustLock(t, registering(t, driver, other), sqllock.ID(9))
		inside, unbindInside := ended.Bind(bound)
		defer unbindInside()
		unlock(t, ended)
		for _, tt := range []struct {
			under context.Context
			db    *sql.DB
			waits int
		}{{bound, elsewhere, 0}, {bound, db, 1}, {inside, db, 1}} {
			tx := transaction(t, tt.db)
			ctx, cancel := context.WithCancel(tt.under)
			done := make(chan error)
			go func() { done <- sqllock.LockTx(ctx, tx, a, time.Hour) }()
			lockertest.Eventually(t, "LockTx waits", func() bool { return waitForLocks(t, tt.db) == 1 })
			lockertest.Eventually(t, "the wait is noted, unless it is elsewhere", func() bool {
				return number(t, db, "SELECT count(*) FROM latchkey_waits") == tt.waits && len(cycles(t, db)) == tt.waits
			})
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("LockTx: %v", err)
			}
		}
		tx := transaction(t, db)
		if err := sqllock.LockTx(bound, tx, a, 50*time.Millisecond); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("LockTx: %v", err)
		}
		execute(t, tx, "SELECT 1")
		lockertest.Eventually(t, "the registry is empty", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 })
	})
}

// A wait in a transaction that may last a heartbeat costs the statements that
// the registry needs. A shorter one would not be written, and costs none.
func TestShortTxWaitsCostNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := registry(t, "pgx", dsn)
	const heartbeat = 20 * time.Millisecond
	lock := mustLock(t, registering(t, "pgx", dsn, sqllock.WithHeartbeat(heartbeat)), sqllock.ID(1))
	bound, cancel := lock.Bind(t.Context())
	defer cancel()
	statements := func(wait time.Duration) int {
		tx := &countedTx{Tx: transaction(t, db)}
		defer tx.Rollback()
		if err := sqllock.LockTx(bound, tx, sqllock.ID(1), wait); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("LockTx: %v", err)
		}
		return tx.n
	}
	plain := statements(time.Millisecond)
	if n := statements(heartbeat - 1); n != plain {
		t.Errorf("%d statements of a wait that is shorter than a heartbeat, want %d", n, plain)
	}
	if n := statements(heartbeat); n <= plain {
		t.Errorf("%d statements of a wait of a heartbeat, want more than %d", n, plain)
	}
}

// Open reports what is wrong with the tables of a schema.
func TestRegistryMisuse(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		tables := strings.Join(lockwatch.Schema(sqllock.PostgreSQL), ";")
		stranger := fmt.Sprintf("stranger_%d", number(t, db, "SELECT oid FROM pg_database WHERE datname = current_database()")) // roles are the server's
		for _, tt := range []struct {
			first, schema, says string
		}{
			{`CREATE SCHEMA "o'ther"; SET search_path = "o'ther"; ` + tables + "; RESET search_path", "", "name their schema"},
			{"SELECT 1", "public", "lockwatch.Schema"},
			{"SELECT 1", "o'ther", ""},
			{tables + "; CREATE ROLE " + stranger + "; ALTER TABLE latchkey_waits OWNER TO " + stranger, "", "somebody else"},
			{"DROP TABLE latchkey_heartbeats, latchkey_waits; DROP ROLE " + stranger + `;
				CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$;
				CREATE TRIGGER refuse BEFORE DELETE ON "o'ther".latchkey_heartbeats FOR EACH STATEMENT EXECUTE FUNCTION refuse()`, "o'ther", "role that may"},
		} {
			execute(t, db, tt.first)
			s, err := sqllock.Open(t.Context(), open(t, driver, dsn), sqllock.WithRegistry(tt.schema))
			if err == nil {
				_ = s.Close()
			}
			if (err == nil) != (tt.says == "") || !strings.Contains(fmt.Sprint(err), tt.says) || errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, sqllock.ErrNotExclusive) {
				t.Errorf("schema %q: %v, want an error that says %q", tt.schema, err, tt.says)
			}
		}
	})
}

// A registry that cannot be written any more costs no lock. The log reports it
// once.
func TestRegistryNeverCostsALock(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		var log lockedBuffer
		s := registering(t, driver, dsn, sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		lock := mustLock(t, s, sqllock.ID(1))
		lockertest.Eventually(t, "the lock is registered", func() bool { return registration(t, db, sqllock.ID(1)).Session != 0 })
		const fails, works = "cannot be written", "written again"
		// A write may also fail because the machine is busy.
		isLogged := func(line string, after func()) {
			t.Helper()
			before := log.count(line)
			after()
			lockertest.Eventually(t, "the log says: "+line, func() bool { return log.count(line) > before })
		}

		tx := transaction(t, db)
		isLogged(fails, func() { execute(t, tx, "LOCK TABLE latchkey_heartbeats IN ACCESS EXCLUSIVE MODE") })
		unlock(t, mustLock(t, s, sqllock.ID(2)))
		isLogged(works, func() { _ = tx.Rollback() })
		isLogged(fails, func() { // it is slow
			execute(t, db, `CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
				CREATE TRIGGER dawdle BEFORE INSERT ON latchkey_heartbeats FOR EACH STATEMENT EXECUTE FUNCTION dawdle()`)
		})
		isLogged(works, func() { execute(t, db, "DROP TRIGGER dawdle ON latchkey_heartbeats") })
		isLogged(fails, func() { execute(t, db, "DROP TABLE latchkey_heartbeats, latchkey_waits") }) // also for the next connection
		if lock.Err() != nil || s.Stats().Losses != 0 {
			t.Errorf("the lock: %v; %d losses", lock.Err(), s.Stats().Losses)
		}
		if log.count(fails) > log.count(works)+1 {
			t.Errorf("the log repeats that the registry cannot be written: %s", log.String())
		}
		terminate(t, db)
		servesAgain(t, s, sqllock.ID(3))
		tellsNothing(t, errors.New(log.String()), dsn)
	})
}
