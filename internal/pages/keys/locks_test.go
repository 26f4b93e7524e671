package keys

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
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

// The page's queries find the session that holds a key of either key space, and
// none for the neighbouring keys.
func TestKeysPageHolder(t *testing.T) {
	page := readKeysPage(t)
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		elsewhere := session(t, driver, pgtest.Database(t)) // the same keys in another database
		s := session(t, driver, dsn)
		want := number(t, db, sessionPID)
		for _, n := range append(keyNumbers, sqllock.Namespace("export").Key("user-1").Int64()) {
			defer mustLock(t, elsewhere, sqllock.ID(n)).Unlock()
			lock := mustLock(t, s, sqllock.ID(n))
			for id, found := range map[int64]int{n: want, n ^ 1: 0, n ^ 1<<32: 0} {
				query := page.query(t, "Who holds this key", 0).with(t, strconv.FormatInt(id, 10))
				if pid := number(t, db, "SELECT coalesce(sum(pid), 0) FROM ("+query+") AS holders"); pid != found {
					t.Errorf("holder of %d, while %d is held: pid %d, want %d", id, n, pid, found)
				}
			}
			unlock(t, lock)
		}
		for _, pair := range [][2]int{{0, 0}, {-7, 8}, {math.MinInt32, math.MaxInt32}, {math.MaxInt32, math.MinInt32}} {
			lock := mustLock(t, s, sqllock.Pair(int32(pair[0]), int32(pair[1])))
			for object, found := range map[int]int{pair[1]: want, pair[1] ^ 1: 0} {
				query := page.query(t, "Who holds this key", 1).with(t, strconv.Itoa(pair[0]), strconv.Itoa(object))
				if pid := number(t, db, "SELECT coalesce(sum(pid), 0) FROM ("+query+") AS holders"); pid != found {
					t.Errorf("holder of %d, %d, while %v is held: pid %d, want %d", pair[0], object, pair, pid, found)
				}
			}
			unlock(t, lock)
		}
	})
}
