package keys

import (
	"errors"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Among a few hundred thousand names two have the same 32-bit hash. A lock on
// one of them excludes the other, permanently. Their keys in package sqllock
// differ.
func TestThirtyTwoBitHashesCollide(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		s := session(t, driver, dsn)
		var key int64
		var one, other string
		err := db.QueryRow(`SELECT hashtext(name), min(name), max(name) FROM (SELECT 'user-' || n AS name FROM generate_series(1, 300000) n) names
			GROUP BY 1 HAVING count(*) > 1 LIMIT 1`).Scan(&key, &one, &other)
		if err != nil || one == other {
			t.Fatalf("no collision: %v", err)
		}
		expectBool(t, connection(t, db), "SELECT pg_try_advisory_lock("+strconv.FormatInt(key, 10)+")", true)
		if _, err := s.TryLock(t.Context(), sqllock.ID(key)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock of the other name: %v, want ErrHeld", err)
		}
		users := sqllock.Namespace("user")
		first, second := mustLock(t, s, users.Key(one)), mustLock(t, s, users.Key(other))
		unlock(t, first)
		unlock(t, second)
	})
}
