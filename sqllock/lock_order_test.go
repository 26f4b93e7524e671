package sqllock_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Callers of two processes need several keys each, and acquire them in the
// order of their numbers. All callers get them.
func TestOneOrderOfKeysHasNoDeadlock(t *testing.T) {
	const callers, rounds, names = 8, 25, 4
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		sessions := []*sqllock.Session{session(t, driver, dsn), session(t, driver, dsn)}
		ended := make(chan error, callers)
		for i := range callers {
			go func() {
				var err error
				for range rounds {
					keys := make([]sqllock.Key, 0, names-1)
					for _, n := range rand.Perm(names)[:names-1] {
						keys = append(keys, sqllock.Namespace("account").Key(string(rune('a'+n))))
					}
					slices.SortFunc(keys, func(a, b sqllock.Key) int { return cmp.Compare(a.Int64(), b.Int64()) })
					err = errors.Join(err, lockInTurn(t.Context(), sessions[i%len(sessions)], keys))
				}
				ended <- err
			}()
		}
		for range callers {
			if err := <-ended; err != nil {
				t.Errorf("a caller did not get its keys: %v", err)
			}
		}
	})
}

// lockInTurn waits for each of keys while it holds the earlier ones, and then
// releases all.
func lockInTurn(ctx context.Context, l sqllock.Locker, keys []sqllock.Key) error {
	if len(keys) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	lock, err := l.Lock(limited, keys[0])
	if err != nil {
		return err
	}
	return errors.Join(lockInTurn(ctx, l, keys[1:]), lock.Unlock())
}
