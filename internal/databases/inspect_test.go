package databases

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Inspect shows the locks of a lease table with their sessions, on each kind of
// database that has one, and nothing of what was given back.
func TestInspectLeases(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		one, other := process(t, o, sqllock.WithLease(time.Minute)), process(t, o, sqllock.WithLease(time.Minute))
		named := sqllock.Namespace("export").Key("user-1")
		for _, key := range []sqllock.Key{named, sqllock.ID(-3), sqllock.Pair(-7, 8)} {
			mustLock(t, one, key)
		}
		mustLock(t, other, sqllock.ID(5))
		must(t, mustLock(t, other, sqllock.ID(6)).Unlock())
		s := inspect(t, pool(t, o))
		if s.Dialect != one.Dialect() || s.Leases != lockwatch.TableRead || len(s.Holders) != 4 || len(s.Waiters)+len(s.Expired) != 0 {
			t.Fatalf("%s, %s:\n%v", s.Dialect, s.Leases, s)
		}
		sessions := make(map[int64]int)
		for _, key := range []sqllock.Key{named, sqllock.ID(-3), sqllock.Pair(-7, 8), sqllock.ID(5)} {
			holders, _ := s.Find(key)
			if len(holders) != 1 || holders[0].Lease == nil || holders[0].Process != (lockwatch.Process{}) {
				t.Fatalf("key %d: %+v", key.Int64(), holders)
			}
			l := holders[0].Lease
			sessions[l.Session]++
			left := l.Expires.Sub(s.At)
			if l.Holder == "" || l.Acquired.After(s.At) || left <= 0 || left > time.Minute+time.Second {
				t.Errorf("key %d: %+v at %v", key.Int64(), l, s.At)
			}
			if text := s.String(); !strings.Contains(text, "lease") || !strings.Contains(text, l.Holder) {
				t.Errorf("text:\n%s", text)
			}
		}
		if len(sessions) != 2 {
			t.Errorf("sessions: %v", sessions)
		}
	})
}

// A lock whose lease has passed is not held. Inspect shows it among the expired
// ones, and Watch reports it until its row is gone.
func TestInspectExpiredLease(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db := pool(t, o)
		live := process(t, o)
		mustLock(t, live, sqllock.ID(1))
		expires := "now() - interval '1 second', 1, 'frozen/1')"
		lock := "(key_space, key_id, session, acquired) SELECT 0, 2, id, expires"
		switch live.Dialect() {
		case sqllock.SQLite:
			expires = "1000, 1, 'frozen/1')"
		case sqllock.MySQL:
			expires = "1000, 1, 'frozen/1', 0)"
			lock = "(key_space, key_id, session, statement) SELECT 0, 2, id, 1"
		}
		columns := "id, expires, statement, holder"
		if live.Dialect() == sqllock.MySQL {
			columns += ", counts_from"
		}
		execute(t, db, "INSERT INTO latchkey_sessions ("+columns+") VALUES (7, "+expires)
		execute(t, db, "INSERT INTO latchkey_locks "+lock+" FROM latchkey_sessions WHERE id = 7")
		s := inspect(t, db)
		if len(s.Holders) != 1 || len(s.Expired) != 1 || s.Expired[0].Key != sqllock.ID(2) || s.Expired[0].Lease.Holder != "frozen/1" {
			t.Fatalf("holders %+v, expired %+v", s.Holders, s.Expired)
		}
		found := make(chan lockwatch.Finding)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- lockwatch.Watch(ctx, db, func(f lockwatch.Finding) { found <- f }, lockwatch.WithInterval(time.Millisecond),
				lockwatch.WithTerminate(func(lockwatch.Finding) bool { t.Error("a lease is not ended by force"); return true }))
		}()
		if f := <-found; f.Kind != lockwatch.LateHeartbeat || f.Over || f.Holder.Lease.Session != 7 {
			t.Errorf("first: %+v", f)
		}
		execute(t, db, "DELETE FROM latchkey_locks WHERE session = 7")
		if f := <-found; f.Kind != lockwatch.LateHeartbeat || !f.Over || f.Holder.Lease.Session != 7 {
			t.Errorf("then: %+v", f)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Inspect only reads: it needs no right to write, and makes no tables. While
// another connection writes, it waits for no lock.
func TestInspectSQLiteReads(t *testing.T) {
	t.Parallel()
	dsn := file(t)
	db := open(t, "sqlite", dsn)
	execute(t, db, "CREATE TABLE t (i int)")
	reader := open(t, "sqlite", dsn+"&_pragma=query_only(1)")
	if s := inspect(t, reader); s.Leases != lockwatch.TableMissing || len(s.Holders) != 0 || !strings.Contains(s.String(), "missing") {
		t.Errorf("without tables: %s\n%v", s.Leases, s)
	}
	if n := number(t, db, "SELECT count(*) FROM sqlite_master"); n != 1 {
		t.Errorf("%d tables", n)
	}
	mustLock(t, session(t, open(t, "sqlite", dsn)), sqllock.ID(1))
	execute(t, mustBegin(t, db), "INSERT INTO t VALUES (1)")
	if s := inspect(t, reader); len(s.Holders) != 1 {
		t.Errorf("holders: %+v", s.Holders)
	}
}

// Inspect and Watch fail at once on a system without lease tables that is not
// PostgreSQL itself, and say what is missing where the locks cannot be seen.
func TestInspectSeesNothing(t *testing.T) {
	t.Parallel()
	hidden, other := mariadbtest.New(t, "--metadata-lock-info=OFF"), mariadbtest.New(t, lockLists["performance_schema"]...)
	must(t, other.Execute("CREATE DATABASE app; CREATE USER plain; GRANT SELECT ON app.* TO plain"))
	for _, tt := range []struct{ name, driver, dsn, says string }{
		{"an unknown server", "pgx", inExecMode(unknownServer(t)), "no lease tables"},
		{"MariaDB without the plugin", "mysql", hidden.Database(t), "INSTALL SONAME 'metadata_lock_info'"},
		{"an ordinary user without the plugin", "mysql", other.DSNOf("plain", "app"), "INSTALL SONAME"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := open(t, tt.driver, tt.dsn)
			if s, err := lockwatch.Inspect(t.Context(), db); !errors.Is(err, errors.ErrUnsupported) || s != nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Inspect: %v", err)
			}
			if err := lockwatch.Watch(t.Context(), db, nil, lockwatch.WithInterval(time.Hour)); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Watch: %v", err)
			}
		})
	}
}

func inspect(t *testing.T, db *sql.DB) *lockwatch.Snapshot {
	t.Helper()
	s, err := lockwatch.Inspect(t.Context(), db)
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	return s
}

// Inspect works through a transaction pooler.
func TestInspectBehindPgBouncer(t *testing.T) {
	t.Parallel()
	pooled := open(t, "pgx", inExecMode(throughPgBouncer(t)))
	must(t, sqllock.TryTx(t.Context(), mustBegin(t, pooled), sqllock.ID(-4)))
	if holders, _ := inspect(t, pooled).Find(sqllock.ID(-4)); len(holders) != 1 || holders[0].Process.PID == 0 {
		t.Errorf("holders: %+v", holders)
	}
}
