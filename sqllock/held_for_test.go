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
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		holder, asker := registering(t, driver, dsn), registering(t, driver, dsn)
		began := time.Now()
		keys := []sqllock.Key{sqllock.ID(-5), sqllock.Pair(-3, 4), sqllock.ID(6)}
		released := mustLock(t, holder, keys[0])
		mustLock(t, holder, keys[1])
		if _, err := holder.TryRLock(t.Context(), keys[2]); err != nil {
			t.Fatal(err)
		}
		known := func(key sqllock.Key, want bool) func() bool {
			return func() bool {
				age, ok := asker.HeldFor(key)
				if ok && (age <= 0 || age > time.Since(began)) {
					t.Errorf("%v, and it was taken %v ago", age, time.Since(began))
				}
				return ok == want
			}
		}
		for _, key := range keys {
			lockertest.Eventually(t, "the age of the key is known", known(key, true))
		}
		if age, ok := holder.HeldFor(keys[0]); !ok || age <= 0 || age > time.Since(began) {
			t.Errorf("the holder's own: %v, %t", age, ok)
		}
		unlock(t, released)
		lockertest.Eventually(t, "the key has no age after Unlock", known(keys[0], false))
		execute(t, db, "ALTER TABLE latchkey_heartbeats RENAME COLUMN holder TO other") // nothing more is written
		execute(t, db, "UPDATE latchkey_heartbeats SET expires = '-infinity'")
		lockertest.Eventually(t, "a row that has expired has no age", known(keys[1], false))
		execute(t, db, "UPDATE latchkey_heartbeats SET expires = 'infinity'")
		lockertest.Eventually(t, "the age of the key is known again", known(keys[1], true))
		_ = holder.Close()
		lockertest.Eventually(t, "the key of a dead process has no age", known(keys[1], false))
	})
}
