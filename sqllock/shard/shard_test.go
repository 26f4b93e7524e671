package shard_test

import (
	"database/sql"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/shard"
)

// memories returns n Lockers without a database.
func memories(n int) []sqllock.Locker {
	lockers := make([]sqllock.Locker, n)
	for i := range lockers {
		lockers[i] = sqllock.NewMemory()
	}
	return lockers
}

// keyOf returns the nth key, from 0, of the shard at place i.
func keyOf(s *shard.Locker, i, n int) sqllock.Key {
	for id := int64(0); ; id++ {
		if key := sqllock.ID(id); s.Index(key) == i {
			if n == 0 {
				return key
			}
			n--
		}
	}
}

// dsns returns two databases.
func dsns(t *testing.T) [2]string {
	t.Helper()
	return [2]string{pgtest.Database(t), pgtest.Database(t)}
}

// An observed Locker reports how many calls of Lock wait in it.
type observed struct {
	*shard.Locker
	sessions [2]*sqllock.Session
}

func (o observed) waiting() int { return o.sessions[0].Stats().Waiting + o.sessions[1].Stats().Waiting }

// overSessions returns a Locker over a Session of each driver. Their heartbeats
// come soon, and remove what a wait leaves on the server.
func overSessions(t *testing.T, dsns [2]string) observed {
	t.Helper()
	beats := sqllock.WithHeartbeat(100 * time.Millisecond)
	a, b := dbtest.Session(t, "pgx", dsns[0], beats), dbtest.Session(t, "postgres", dsns[1], beats)
	return observed{shard.New(a, b), [2]*sqllock.Session{a, b}}
}

func TestConforms(t *testing.T)     { conforms(t, lockertest.Run) }
func TestLongConforms(t *testing.T) { conforms(t, lockertest.RunLong) }

func conforms(t *testing.T, run func(*testing.T, lockertest.Fleet)) {
	t.Parallel()
	dsns := dsns(t)
	observers := []*sql.DB{dbtest.Open(t, "pgx", dsns[0]), dbtest.Open(t, "pgx", dsns[1])}
	run(t, lockertest.Fleet{
		New:      func(t *testing.T) sqllock.Locker { return overSessions(t, dsns) },
		InLine:   func(l sqllock.Locker) int { return l.(observed).waiting() },
		AnyOrder: true,
		Leftovers: func(t *testing.T) int {
			return dbtest.AdvisoryLocks(t, observers[0]) + dbtest.AdvisoryLocks(t, observers[1])
		},
	})
}

// manyKeys are the kinds of keys.
var manyKeys = []struct {
	name string
	key  func(i int) sqllock.Key
}{
	{"numbers in a row", func(i int) sqllock.Key { return sqllock.ID(int64(i)) }},
	{"negative numbers", func(i int) sqllock.Key { return sqllock.ID(-int64(i)) }},
	{"numbers far apart", func(i int) sqllock.Key { return sqllock.ID(int64(i) << 32) }},
	{"random numbers", func(i int) sqllock.Key { return sqllock.ID(int64(rand.NewPCG(1, uint64(i)).Uint64())) }},
	{"names", func(i int) sqllock.Key { return sqllock.Namespace("export").Key(strconv.Itoa(i)) }},
	{"objects of a class", func(i int) sqllock.Key { return sqllock.Pair(7, int32(i)) }},
	{"classes of an object", func(i int) sqllock.Key { return sqllock.Pair(int32(i), 7) }},
}

// A shard added at the end takes its share of the keys, the same part from each
// of the others. No other key moves.
func TestShardAdded(t *testing.T) {
	t.Parallel()
	const keys = 20_000
	for _, kind := range manyKeys {
		for _, n := range []int{1, 2, 3, 8} {
			before, after := shard.New(memories(n)...), shard.New(memories(n+1)...)
			from := make([]float64, n)
			for i := range keys {
				key := kind.key(i)
				was, is := before.Index(key), after.Index(key)
				if was == is {
					continue
				}
				if is != n {
					t.Fatalf("%s: a key moved from shard %d to %d of %d", kind.name, was, is, n+1)
				}
				from[was]++
			}
			share := float64(keys) / float64(n) / float64(n+1)
			for i, moved := range from {
				if math.Abs(moved-share) > 6*math.Sqrt(share) {
					t.Errorf("%s: %v keys of %d moved from shard %d of %d, want about %.0f", kind.name, moved, keys, i, n, share)
				}
			}
		}
	}
}

// The shard of a key is the same in every version.
func TestIndexIsForGood(t *testing.T) {
	t.Parallel()
	s := shard.New(memories(5)...)
	for key, want := range map[sqllock.Key]int{
		sqllock.ID(0):                             1,
		sqllock.ID(1):                             1,
		sqllock.ID(-1):                            0,
		sqllock.ID(math.MaxInt64):                 1,
		sqllock.ID(math.MinInt64):                 3,
		sqllock.Pair(0, 1):                        3,
		sqllock.Pair(-1, -1):                      4,
		sqllock.Namespace("export").Key("user-1"): 2,
	} {
		if got := s.Index(key); got != want {
			t.Errorf("key %d is of shard %d, want %d", key.Int64(), got, want)
		}
	}
}

// Two names with one number exclude each other, so they belong to one shard.
func TestIndexGoesByWhatTheDatabaseSees(t *testing.T) {
	t.Parallel()
	s := shard.New(memories(8)...)
	for i := range 1000 {
		for _, ns := range []sqllock.Namespace{"export", "payout"} {
			for _, named := range []sqllock.Key{ns.Key(strconv.Itoa(i)), ns.Keyed([]byte("secret")).SlotKey("ada", i)} {
				if s.Index(named) != s.Index(sqllock.ID(named.Int64())) {
					t.Fatal("a name and its number are of different shards")
				}
			}
		}
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	memory := sqllock.NewMemory()
	for name, lockers := range map[string][]sqllock.Locker{
		"none":          nil,
		"nil":           {memory, nil},
		"a nil Session": {(*sqllock.Session)(nil), memory},
		"a Sharded":     {memory, shard.New(memory)},
	} {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "shard", "", func() { shard.New(lockers...) }) })
	}
}

// The data that a lock guards may be in the database of its shard, or in one
// database for all shards.
func TestFence(t *testing.T) {
	t.Parallel()
	dsns := dsns(t)
	s := overSessions(t, dsns)
	for place, dsn := range dsns {
		db := dbtest.Open(t, "pgx", dsn)
		dbtest.Create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
		for i := range dsns {
			for range 2 { // the second holder is later
				lock := dbtest.Lock(t, s, keyOf(s.Locker, i, place))
				tx := dbtest.Transaction(t, db)
				if err := errors.Join(sqllock.Fence(t.Context(), tx, lock), tx.Commit()); err != nil {
					t.Errorf("Fence of a key of shard %d, data in %d: %v", i, place, err)
				}
				dbtest.Unlock(t, lock)
			}
		}
	}
}
