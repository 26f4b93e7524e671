package shard

import (
	"context"
	"reflect"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Sharded is a Locker that spreads keys over several others, its shards, each
// on a database of its own: for a fleet that has outgrown one server. A key is
// always of one shard, by what the database sees of it, and so all that holds of
// that shard's locks holds of it. While a database is away its own keys fail, and
// no others.
//
// The list of shards is part of what the fleet agrees on: which shard a key is
// of follows from the key, the number of shards and their order, in every
// process and version of this package alike. A shard added at the end takes its
// share of the keys from all others, and no other key moves; but two processes
// with different lists let two in at a key that has moved, and nothing could
// notice. So the list is changed while the fleet is stopped: stop all processes,
// wait for a lease (for one that may be frozen or cut off), start all with the
// new list.
//
// [Fence] works with a lock of a Session that is a shard. All tokens of a key
// come from its one shard, and so can be compared, wherever the guarded data is.
// After a change of the list they cannot: a row of another system is replaced
// without comparison.
//
// That two processes use different secrets for one namespace ([Namespace.Keyed])
// is noticed on a shard that both use, and only there.
//
// Invariant: it never changes, so that it needs no lock of its own.
type Locker struct {
	shards []member
}

// A member is one of the lockers of a Locker.
type member struct {
	sqllock.Locker
	several several // the Locker, if it takes one of several keys; else nil
	seed    uint64  // tells its place from the others
}

// several is a locker that takes the first free one of several keys, as
// [*Session] and [*Memory] do.
type several interface {
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
	LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// Shard makes a Sharded of lockers: mostly Sessions, on different databases, in
// the order that the whole fleet has. They stay the caller's, to close too.
//
// It panics if there are none, or one is nil or itself a Sharded: what two
// layers choose alike leaves shards without keys.
func New(lockers ...sqllock.Locker) *Locker {
	if len(lockers) == 0 {
		panic("shard: New needs a Locker at least")
	}
	s := &Locker{shards: make([]member, len(lockers))}
	for i, l := range lockers {
		if isNil(l) {
			panic("shard: New needs Lockers that are not nil")
		}
		if _, ok := l.(*Locker); ok {
			panic("shard: New cannot shard a Locker of this package: give it all Lockers in one list")
		}
		s.shards[i] = member{Locker: l, seed: mix(golden * uint64(i+1))}
		s.shards[i].several, _ = l.(several)
	}
	return s
}

// isNil reports whether l is nil, or, say, the *Session of an Open whose error
// was ignored.
func isNil(l sqllock.Locker) bool {
	v := reflect.ValueOf(l)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// TryLock takes key on its shard. Its errors are that shard's.
func (s *Locker) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return s.shards[s.Index(key)].TryLock(ctx, key)
}

// Lock waits for key on its shard. Its errors are that shard's.
func (s *Locker) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return s.shards[s.Index(key)].Lock(ctx, key)
}

// Index is the place of key's shard in the list, from 0: whose database to look
// into for its holder, or to keep the data in that [Fence] guards.
//
// It is rendezvous hashing: each shard draws a number for the key, and the
// highest wins. A new shard wins its share and changes nothing between the
// others.
//
// D. G. Thaler and C. V. Ravishankar, "Using Name-Based Mappings to Increase Hit
// Rates" (IEEE/ACM Transactions on Networking, 1998).
func (s *Locker) Index(key sqllock.Key) int {
	hash := hashKey(idOf(key))
	best, highest := 0, uint64(0)
	for i := range s.shards {
		if drawn := mix(hash ^ s.shards[i].seed); drawn > highest {
			best, highest = i, drawn
		}
	}
	return best
}

// An id is what the database sees of a key: two keys exclude each other if their
// ids are equal.
type id struct {
	number int64
	pair   bool
}

func idOf(key sqllock.Key) id {
	_, _, pair := key.Pair()
	return id{key.Int64(), pair}
}

// hashKey and mix are for good: another version that chose otherwise could not
// run beside this one.
func hashKey(key id) uint64 {
	if key.pair {
		return mix(uint64(key.number) ^ golden)
	}
	return mix(uint64(key.number))
}

// golden is 2⁶⁴ over the golden ratio, odd.
const golden = 0x9e3779b97f4a7c15

// mix makes each bit of the result depend on each of x, and is one to one. It is
// the last step of SplitMix64: G. L. Steele, D. Lea and C. H. Flood, "Fast
// Splittable Pseudorandom Number Generators" (OOPSLA 2014), with the constants of
// D. Stafford's Mix13.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
