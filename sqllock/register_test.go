package sqllock_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
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
// heartbeat on. A name is there only if the lock was given one. The entry ends
// with the lock.
func TestRegistryIsWritten(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn, sqllock.WithHolder(`the "worker" o'clock \ 7`))
		plain, named, read := sqllock.Namespace("registry").Key("secret"), sqllock.Pair(-3, 4), sqllock.ID(-5)
		lock := mustLock(t, s, plain)
		with := mustLock(t, s, named)
		with.SetName("it's a \\ name\x00" + strings.Repeat("ü", 200))
		if _, err := s.TryRLock(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "all three are registered", func() bool {
			return number(t, db, "SELECT count(*) FROM latchkey_heartbeats") == 3
		})
		lockertest.Eventually(t, "the name is registered", func() bool { return registration(t, db, named).Name != "" })
		h := registration(t, db, named)
		if !strings.HasPrefix(h.Name, "it's a \\ name?üü") || len(h.Name) > 200 || h.Holder != `the "worker" o'clock \ 7` {
			t.Errorf("name %q, holder %q", h.Name, h.Holder)
		}
		if h := registration(t, db, plain); h.Name != "" || h.Namespace != "registry" {
			t.Errorf("a lock without a name: name %q, namespace %q", h.Name, h.Namespace)
		}
		if registration(t, db, read).Session == 0 { // a registration counts only for a lock of the same mode
			t.Error("a reader's lock is not registered as one")
		}
		before := registration(t, db, plain)
		lockertest.Eventually(t, "heartbeats go on", func() bool { return registration(t, db, plain).Heartbeat.After(before.Heartbeat) })
		if after := registration(t, db, plain); after.Acquired.Sub(before.Acquired).Abs() > time.Minute || !after.Expires.After(after.Heartbeat) {
			t.Errorf("acquired %v, then %v; expires %v", before.Acquired, after.Acquired, after.Expires)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		bound, unbind := with.Bind(ctx)
		defer unbind()
		for _, ctx := range []context.Context{ctx, ctx, bound} {
			waiting.Go(func() { _, _ = s.Lock(ctx, plain) })
		}
		waiting.Go(func() { _, _ = s.LockAll(bound, sqllock.ID(77), plain) })
		elsewhere, unbindElsewhere := mustLock(t, session(t, driver, dsn), sqllock.ID(99)).Bind(ctx) // of another Session: this one cannot know that it is in the same database
		defer unbindElsewhere()
		waiting.Go(func() { _, _ = s.Lock(elsewhere, plain) })
		lockertest.Eventually(t, "the waiter is registered, with the locks that it holds", func() bool {
			return number(t, db, "SELECT count(*) FROM latchkey_waits WHERE held_space = -1 AND waiters = 3") == 1 &&
				number(t, db, "SELECT coalesce(sum(waiters), 0) FROM latchkey_waits WHERE held_space = 1") == 3
		})
		cancel()
		waiting.Wait()
		unlock(t, lock)
		lockertest.Eventually(t, "no caller waits, and one lock less is held", func() bool {
			return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 && number(t, db, "SELECT count(*) FROM latchkey_heartbeats") == 2
		})
	})
}

// The registry is written under load too, when no heartbeat would be due
// otherwise.
func TestRegistryIsWrittenUnderLoad(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn)
		_ = mustLock(t, s, sqllock.ID(1))
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		for i := range 4 {
			busy.Go(func() {
				for ctx.Err() == nil {
					if lock, err := s.TryLock(ctx, sqllock.ID(int64(10+i))); err == nil {
						_ = lock.Unlock()
					}
				}
			})
		}
		lockertest.Eventually(t, "the lock is registered", func() bool { return registration(t, db, sqllock.ID(1)).Session != 0 })
		first := registration(t, db, sqllock.ID(1)).Heartbeat
		lockertest.Eventually(t, "heartbeats go on", func() bool { return registration(t, db, sqllock.ID(1)).Heartbeat.After(first) })
		cancel()
		busy.Wait()
	})
}

// Two callers each hold the key that the other one waits for, in one Session or
// in two. PostgreSQL cannot see this cycle.
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
				waiting.Go(func() { _, _ = sessions[i].Lock(bound, locks[1-i].Key()) })
			}
			lockertest.Eventually(t, name+": a cycle", func() bool {
				s, err := lockwatch.Inspect(t.Context(), db)
				if err != nil {
					t.Fatal(err)
				}
				return len(s.Cycles()) > 0
			})
			cancel()
			waiting.Wait()
			lockertest.Eventually(t, name+": the cycle has ended", func() bool {
				s, err := lockwatch.Inspect(t.Context(), db)
				return err == nil && len(s.Cycles()) == 0
			})
		}
	})
}

// Open reports what is missing: the tables, the tables in the schema that was
// named, a right, or PostgreSQL.
func TestRegistryMisuse(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		rejects := func(what, says string, opts ...sqllock.Option) {
			t.Helper()
			s, err := sqllock.Open(t.Context(), open(t, driver, dsn), opts...)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), says) || errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, sqllock.ErrNotExclusive) {
				t.Errorf("%s: %v, want an error of its own that says %q", what, err, says)
			}
		}
		rejects("no tables", "lockwatch.Schema", sqllock.WithRegistry(""))
		rejects("no tables, lazily", "lockwatch.Schema", sqllock.WithRegistry(""), sqllock.WithLazyOpen())
		execute(t, db, `CREATE SCHEMA "o'ther"; SET search_path = "o'ther"; `+strings.Join(lockwatch.Schema(sqllock.PostgreSQL), ";")+`; RESET search_path`)
		rejects("tables in another schema", "name their schema", sqllock.WithRegistry(""))
		rejects("a schema without them", "lockwatch.Schema", sqllock.WithRegistry("public"))
		if s := session(t, driver, dsn, sqllock.WithRegistry("o'ther")); s.Close() != nil {
			t.Error("the schema that has the tables is rejected")
		}
		var stranger string // roles are the server's, and databases have their own names
		if err := db.QueryRow("SELECT 'stranger_of_' || current_database()").Scan(&stranger); err != nil {
			t.Fatal(err)
		}
		execute(t, db, strings.Join(lockwatch.Schema(sqllock.PostgreSQL), ";")+"; CREATE ROLE "+stranger+"; ALTER TABLE latchkey_waits OWNER TO "+stranger)
		rejects("tables of a stranger's", "somebody else", sqllock.WithRegistry(""))
		execute(t, db, "DROP TABLE latchkey_heartbeats, latchkey_waits; DROP ROLE "+stranger)
		execute(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$;
			CREATE TRIGGER refuse BEFORE DELETE ON "o'ther".latchkey_heartbeats FOR EACH STATEMENT EXECUTE FUNCTION refuse()`)
		rejects("a right is missing", "role that may", sqllock.WithRegistry("o'ther"))
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

		// Another session holds the table's lock.
		tx := transaction(t, db)
		isLogged(fails, func() {
			if _, err := tx.ExecContext(t.Context(), "LOCK TABLE latchkey_heartbeats IN ACCESS EXCLUSIVE MODE"); err != nil {
				t.Fatal(err)
			}
		})
		if err := mustLock(t, s, sqllock.ID(2)).Unlock(); err != nil {
			t.Errorf("a lock acquired meanwhile: %v", err)
		}
		if lock.Err() != nil || s.Stats().Losses != 0 {
			t.Fatalf("the lock: %v; %d losses", lock.Err(), s.Stats().Losses)
		}
		isLogged(works, func() {
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		})

		// The registry is slow.
		isLogged(fails, func() {
			execute(t, db, `CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
				CREATE TRIGGER dawdle BEFORE INSERT ON latchkey_heartbeats FOR EACH STATEMENT EXECUTE FUNCTION dawdle()`)
		})
		isLogged(works, func() { execute(t, db, "DROP TRIGGER dawdle ON latchkey_heartbeats") })

		// The registry is gone, also for the next connection.
		isLogged(fails, func() { execute(t, db, "DROP TABLE latchkey_heartbeats, latchkey_waits") })
		if lock.Err() != nil || s.Stats().Losses != 0 {
			t.Errorf("the lock: %v; %d losses", lock.Err(), s.Stats().Losses)
		}
		if log.count(fails) > log.count(works)+1 {
			t.Errorf("the log repeats that the registry cannot be written: %s", log.String())
		}
		number(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
		lockertest.Eventually(t, "it serves again without a registry", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(3))
			return err == nil && lock.Unlock() == nil
		})
		if text := log.String(); strings.Contains(text, "127.0.0.1") || strings.Contains(text, dsn) {
			t.Errorf("the log contains the database's address: %s", text)
		}
	})
}

// A database of another encoding cannot store every name. A client's encoding
// may have backslashes within characters. The registry is written in both
// cases.
func TestRegistryInAnotherEncoding(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	execute(t, open(t, "pgx", cluster.DSN("")), "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	execute(t, open(t, "pgx", cluster.DSN("")), "ALTER DATABASE postgres SET client_encoding = 'SJIS'")
	execute(t, open(t, "pgx", cluster.DSN("")), "ALTER DATABASE postgres SET backslash_quote = 'on'")
	for _, driver := range pgtest.Drivers() {
		for database, want := range map[string]string{"latin": "it's ? \\ ?", "postgres": "it's \u3042 \\ \u3042"} {
			db := registry(t, driver, cluster.DSN(database))
			lock := mustLock(t, registering(t, driver, cluster.DSN(database)), sqllock.ID(1))
			lock.SetName("it's \u3042 \\ \u3042")
			lockertest.Eventually(t, "the lock is registered", func() bool {
				return number(t, db, "SELECT count(*) FROM latchkey_heartbeats WHERE name IS NOT NULL") > 0
			})
			got := ""
			if err := db.QueryRowContext(t.Context(), "SELECT encode(convert_to(name, 'UTF8'), 'hex') FROM latchkey_heartbeats").Scan(&got); err != nil || got != hex.EncodeToString([]byte(want)) {
				t.Errorf("%s, %s: the name's bytes are %s, %v, want those of %q", driver, database, got, err, want)
			}
			unlock(t, lock)
			lockertest.Eventually(t, "the row is gone", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_heartbeats") == 0 })
		}
	}
}
