package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A readerLocker acquires exclusive locks and readers' locks.
type readerLocker interface {
	sqllock.Locker
	TryRLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error)
	RLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error)
}

var (
	_ readerLocker = (*sqllock.Session)(nil)
	_ readerLocker = (*sqllock.ConnLocker)(nil)
	_ readerLocker = (*sqllock.Memory)(nil)
)

// Readers of every kind (Sessions, connections and transactions) share a key.
// They exclude every caller that wants it alone, in both key spaces.
func TestReadersOfAllKinds(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		lockers := map[string]readerLocker{
			"session": session(t, driver, dsn), "another session": session(t, driver, dsn), "connection": sqllock.OnConn(connection(t, db)),
		}
		for _, key := range []sqllock.Key{sqllock.Namespace("readers").Key("x"), sqllock.ID(-1 << 63), sqllock.Pair(-1, 7)} {
			tx := transaction(t, db)
			if err := sqllock.TryRTx(t.Context(), tx, key); err != nil {
				t.Fatalf("TryRTx: %v", err)
			}
			var readers []*sqllock.Lock
			for name, l := range lockers {
				for range 2 {
					lock, err := l.TryRLock(t.Context(), key)
					if err != nil {
						t.Fatalf("%s: TryRLock while others read: %v", name, err)
					}
					readers = append(readers, lock)
				}
			}
			rejectsWriters := func(when string) {
				t.Helper()
				for name, l := range lockers {
					if _, err := l.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("%s: TryLock %s: %v, want ErrHeld", name, when, err)
					}
				}
				if err := sqllock.TryTx(t.Context(), transaction(t, db), key); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryTx %s: %v, want ErrHeld", when, err)
				}
			}
			rejectsWriters("while others read")
			for _, l := range readers {
				if err := l.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
			rejectsWriters("while a transaction reads")
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			for name, l := range lockers {
				lock, err := l.TryLock(t.Context(), key)
				if err != nil {
					t.Fatalf("%s: TryLock after the last reader: %v", name, err)
				}
				for other, l := range lockers {
					if _, err := l.TryRLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("%s: TryRLock while %s holds the key alone: %v, want ErrHeld", other, name, err)
					}
				}
				tx := transaction(t, db)
				if err := sqllock.TryRTx(t.Context(), tx, key); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryRTx: %v, want ErrHeld", err)
				}
				if err := sqllock.RLockTx(t.Context(), tx, key, 5*time.Millisecond); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("RLockTx: %v, want ErrHeld", err)
				}
				if err := lock.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
				if err := sqllock.RLockTx(t.Context(), tx, key, time.Minute); err != nil {
					t.Errorf("RLockTx of a free key: %v", err)
				}
				_ = tx.Rollback()
			}
		}
	})
}

// A reader's lock cannot be fenced. Fence reports that.
func TestReadersAreNotFenced(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
		lock, err := session(t, driver, dsn).TryRLock(t.Context(), sqllock.ID(1))
		if err != nil {
			t.Fatal(err)
		}
		tx := transaction(t, db)
		if err := sqllock.Fence(t.Context(), tx, lock); err == nil || errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence with a reader's lock: %v", err)
		}
		if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("Commit after a Fence that failed: %v, want ErrTxDone", err)
		}
	})
}
