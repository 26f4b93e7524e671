package keys

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A lock on the pair of the page's SQL excludes Go until it is released. A pair
// has no computation, which TestKeysPageSQL would check.
func TestKeysPageExcludes(t *testing.T) {
	page := readKeysPage(t)
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		conn := connection(t, open(t, driver, dsn))
		s := session(t, driver, dsn)
		for _, class := range []int32{1, -1, math.MinInt32, math.MaxInt32} {
			object := -class - 1
			key := sqllock.Pair(class, object)
			take := page.query(t, "Pairs: type and id", 0).with(t, strconv.Itoa(int(class)), strconv.Itoa(int(object)))
			expectBool(t, conn, take, true)
			if _, err := s.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of pair %d, %d: %v, want ErrHeld", class, object, err)
			}
			expectBool(t, conn, strings.Replace(take, "pg_try_advisory_lock", "pg_advisory_unlock", 1), true)
			lock := mustLock(t, s, key)
			expectBool(t, conn, take, false)
			unlock(t, lock)
		}
	})
}
