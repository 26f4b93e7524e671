package sqllock_test

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// One Session learns from the registry how long another one has held its keys,
// of both key spaces, and readers' locks. What is free, or held by a process
// that has died, has no age.
func TestHeldForInTheRegistry(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		holder, asker := registering(t, driver, dsn), registering(t, driver, dsn)
		began := time.Now()
		keys := []sqllock.Key{sqllock.ID(-5), sqllock.Pair(-3, 4), sqllock.Namespace("report").Key("a")}
		var locks []*sqllock.Lock
		for _, key := range keys {
			locks = append(locks, mustLock(t, holder, key))
		}
		read, err := holder.TryRLock(t.Context(), sqllock.ID(6))
		if err != nil {
			t.Fatal(err)
		}
		locks, keys = append(locks, read), append(keys, sqllock.ID(6))
		free := sqllock.ID(99)
		for _, key := range keys {
			lockertest.Eventually(t, "the age of the key is known", func() bool {
				asker.HeldFor(free)
				age, ok := asker.HeldFor(key)
				if ok && (age <= 0 || age > time.Since(began)) {
					t.Errorf("%v, and it was taken %v ago", age, time.Since(began))
				}
				return ok
			})
		}
		if age, ok := asker.HeldFor(free); ok {
			t.Errorf("a free key: %v", age)
		}
		if age, ok := holder.HeldFor(keys[0]); !ok || age <= 0 || age > time.Since(began) {
			t.Errorf("the holder's own: %v, %t", age, ok)
		}
		for _, lock := range locks {
			unlock(t, lock)
		}
		for _, key := range keys {
			lockertest.Eventually(t, "the key has no age after Unlock", func() bool { _, ok := asker.HeldFor(key); return !ok })
		}

		// A row counts while it has not expired, and while its process lives.
		mustLock(t, holder, keys[0])
		known := func(want bool) func() bool {
			return func() bool { _, ok := asker.HeldFor(keys[0]); return ok == want }
		}
		lockertest.Eventually(t, "the age of the key is known", known(true))
		execute(t, db, "ALTER TABLE latchkey_heartbeats RENAME COLUMN holder TO other") // nothing more is written
		execute(t, db, "UPDATE latchkey_heartbeats SET expires = '-infinity'")
		lockertest.Eventually(t, "a row that has expired has no age", known(false))
		execute(t, db, "UPDATE latchkey_heartbeats SET expires = 'infinity'")
		lockertest.Eventually(t, "the age of the key is known again", known(true))
		_ = holder.Close()
		lockertest.Eventually(t, "the lock of the process is free", func() bool { return advisoryLocks(t, db) == 0 })
		if n := number(t, db, "SELECT count(*) FROM latchkey_heartbeats"); n == 0 {
			t.Fatal("no row is left of the process")
		}
		lockertest.Eventually(t, "the key of a dead process has no age", known(false))
	})
}
