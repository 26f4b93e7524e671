package databases

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func itoa(n int) string { return strconv.Itoa(n) }

func eachLeaseTable(t *testing.T, test func(t *testing.T, o lockertest.Orders)) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		if k.locks != leaseRows {
			t.Skip("not a lease table")
		}
		test(t, o)
	})
}

// The fence rejects a stale holder whose session's row was deleted. It does so
// even if the holder has had no token before.
func TestLeaseTableFence(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db := open(t, o.Driver, o.DSN)
		if o.LeaseTable {
			create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
		}
		execute(t, db, "CREATE TABLE work (who INTEGER)")
		for _, tt := range []struct{ hadToken, emptied bool }{{hadToken: true}, {}, {emptied: true}} {
			first, later := process(t, o, sqllock.WithLease(time.Hour)), process(t, o)
			if tt.emptied {
				execute(t, db, "DELETE FROM latchkey_tokens") // tokens rise even if this table is emptied
			}
			stale := mustLock(t, first, sqllock.ID(1))
			if tt.hadToken {
				if err := fencedWork(t, db, stale, 1); err != nil {
					t.Fatalf("Fence: %v", err)
				}
			}
			execute(t, db, "DELETE FROM latchkey_sessions WHERE id IN (SELECT session FROM latchkey_locks)")
			execute(t, db, "DELETE FROM latchkey_locks")
			lock := mustLock(t, later, sqllock.ID(1))
			if err := fencedWork(t, db, lock, 2); err != nil {
				t.Fatalf("Fence of the later holder: %v", err)
			}
			if err := stale.Err(); err != nil {
				t.Fatalf("the stale holder has noticed already: %v", err)
			}
			want := sqllock.ErrFenced
			if isUnknownServer(o) && !tt.hadToken {
				want = sqllock.ErrLost // the holder learns this when it requests a token
			}
			if err := fencedWork(t, db, stale, 3); err != want {
				t.Errorf("Fence of the stale holder: %v, want %v", err, want)
			}
			if number(t, db, "SELECT count(*) FROM work WHERE who = 3") > 0 {
				t.Error("the stale holder's work is in the database")
			}
			_ = stale.Unlock()
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		}
	})
}

// fencedWork commits whatever the fence has returned, as a careless caller
// would.
func fencedWork(t *testing.T, db *sql.DB, lock *sqllock.Lock, who int) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	fenceErr := sqllock.Fence(context.Background(), tx, lock)
	_, writeErr := tx.Exec("INSERT INTO work VALUES (" + itoa(who) + ")")
	if commitErr := tx.Commit(); fenceErr == nil && (writeErr != nil || commitErr != nil) {
		t.Errorf("past the fence: write %v, commit %v", writeErr, commitErr)
	}
	return fenceErr
}

// In a pool of one connection, the fence's transaction has that connection.
func TestLeaseTableFenceInPoolOfOne(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		if isUnknownServer(o) {
			t.Skip("needs a second connection, for the token")
		}
		db := open(t, o.Driver, o.DSN)
		db.SetMaxOpenConns(1)
		s := session(t, db, o.Options()...)
		if o.LeaseTable {
			create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
		}
		execute(t, db, "CREATE TABLE work (who INTEGER)")
		lock := mustLock(t, s, sqllock.ID(1))
		if err := fencedWork(t, db, lock, 1); err != nil {
			t.Errorf("Fence: %v", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A session whose row is deleted finds out at its next heartbeat, and begins
// anew.
func TestLeaseTableSessionDeleted(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		s := process(t, o, sqllock.WithLease(2*time.Second))
		lock := mustLock(t, s, sqllock.ID(1))
		execute(t, open(t, o.Driver, o.DSN), "DELETE FROM latchkey_sessions")
		<-lock.Context().Done()
		if err := lock.Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		lockertest.Eventually(t, "the key is free again", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(1))
			return err == nil && lock.Unlock() == nil
		})
	})
}

// A lock is free to every caller after its session's row was deleted, which
// frees it by force. It does not matter whether the session has expired.
func TestLeaseTableLockWithoutSession(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		held := mustLock(t, process(t, o, sqllock.WithLease(time.Hour)), sqllock.ID(1))
		other := process(t, o, sqllock.WithLease(time.Hour))
		execute(t, open(t, o.Driver, o.DSN), "DELETE FROM latchkey_sessions WHERE id IN (SELECT session FROM latchkey_locks)")
		if err := mustLock(t, other, sqllock.ID(1)).Unlock(); err != nil {
			t.Error(err)
		}
		if err := held.Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock of the lock that was freed by force: %v, want ErrLost", err)
		}
	})
}

// Sessions that create the tables at the same moment all succeed.
func TestLeaseTableMadeAtOnce(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				s, err := sqllock.Open(context.Background(), open(t, o.Driver, o.DSN), o.Options()...)
				if err != nil {
					t.Errorf("Open: %v", err)
					return
				}
				_ = s.Close()
			})
		}
		wg.Wait()
	})
}

// The locks outlive a restart of the server, because the tables are on disk.
func TestLeaseTableServerRestarts(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			dsn := cluster.DSN("")
			if driver == "pgx" {
				dsn = inExecMode(dsn)
			}
			o := lockertest.Orders{Driver: driver, DSN: dsn, LeaseTable: true}
			s, other := process(t, o, sqllock.WithLease(time.Minute)), process(t, o, sqllock.WithLease(time.Minute))
			for _, stop := range []func() error{cluster.Stop, cluster.Kill} {
				lock := mustLock(t, s, sqllock.ID(1))
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if _, err := s.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrUnavailable) {
					t.Errorf("TryLock without a server: %v, want ErrUnavailable", err)
				}
				if err := cluster.StartAgain(); err != nil {
					t.Fatal(err)
				}
				for _, l := range []sqllock.Locker{s, other} { // each asks the server again after a pause
					lockertest.Eventually(t, "the server grants again", func() bool {
						lock, err := l.TryLock(t.Context(), sqllock.ID(2))
						return err == nil && lock.Unlock() == nil
					})
				}
				if _, err := other.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryLock of a key that is held since before the restart: %v, want ErrHeld", err)
				}
				if err := lock.Err(); err != nil {
					t.Errorf("the lock after the restart: %v", err)
				}
				if err := lock.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
}

// Open rejects a driver that prepares its statements, and says what to set.
func TestLeaseTableRefusesPreparingDriver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	for mode, safe := range map[string]bool{
		"": false, "cache_statement": false, "describe_exec": false,
		"cache_describe": true, "exec": true, "simple_protocol": true,
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			dsn := dsn
			if mode != "" {
				dsn = strings.Replace(inExecMode(dsn), "=exec", "="+mode, 1)
			}
			s, err := sqllock.Open(t.Context(), open(t, "pgx", dsn), sqllock.WithLeaseTable())
			switch {
			case err == nil:
				_ = s.Close()
				if !safe {
					t.Error("Open succeeded")
				}
			case safe || !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "default_query_exec_mode=exec"):
				t.Errorf("Open: %v", err)
			}
		})
	}
}
