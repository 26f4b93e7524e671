package keys

import (
	"context"
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// While a deployment changes how keys are made, a process that acquires both
// keys excludes processes with the old and with the new scheme. Those two do
// not exclude each other.
func TestTwoSchemes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		here, there := session(t, driver, dsn), session(t, driver, dsn)
		for change, keys := range map[string][2]sqllock.Key{
			"an id gets a name":      {sqllock.ID(42), sqllock.Namespace("order").Key("42")},
			"a pair gets a name":     {sqllock.Pair(classOrder, 42), sqllock.Namespace("order").Key("43")},
			"a secret is introduced": {sqllock.Namespace("a").Key("x"), sqllock.Namespace("a-2").Keyed([]byte("first")).Key("x")},
			"a secret is changed":    {sqllock.Namespace("b").Keyed([]byte("first")).Key("x"), sqllock.Namespace("b-2").Keyed([]byte("next")).Key("x")},
			"a namespace is changed": {sqllock.Namespace("c").Key("x"), sqllock.Namespace("d").Key("x")},
		} {
			processes := map[string][]sqllock.Key{"old": keys[:1], "both": keys[:], "new": keys[1:]}
			for one, first := range processes {
				for other, second := range processes {
					var inside error
					err := doAll(t.Context(), here, first, func(ctx context.Context) error {
						inside = doAll(ctx, there, second, func(context.Context) error { return nil })
						return nil
					})
					want := sqllock.ErrHeld
					if one != other && one != "both" && other != "both" {
						want = nil // neither excludes the other
					}
					if err != nil || !errors.Is(inside, want) {
						t.Errorf("%s: %s while %s holds: %v, %v, want %v", change, other, one, err, inside, want)
					}
				}
			}
		}
		// The locks of the secret check, of mode ShareLock, remain.
		n := number(t, open(t, driver, dsn), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		if n != 0 {
			t.Errorf("%d locks remain", n)
		}
	})
}

// doAll is Do with the locks of all keys, in the order of keys.
func doAll(ctx context.Context, l sqllock.Locker, keys []sqllock.Key, work func(context.Context) error) error {
	if len(keys) == 0 {
		return work(ctx)
	}
	return sqllock.Do(ctx, l, keys[0], func(ctx context.Context) error { return doAll(ctx, l, keys[1:], work) })
}
