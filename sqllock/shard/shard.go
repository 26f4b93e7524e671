package shard

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Locker is a [sqllock.Locker] over several others, its shards. Each shard
// has a database of its own. New makes one. Its methods are safe for concurrent
// use.
//
// A key belongs to one shard. Which one follows from the key's number in the
// database, the number of shards and their order. It is the same in every
// process and in every version of this package.
//
// So all processes of the fleet must have the same list. With different lists
// two processes may hold one key, and nothing notices it. A shard added at the
// end takes its share of the keys from all others, and no other key moves. To
// change the list:
//   - stop all processes;
//   - wait for a lease, if one of them may be frozen or cut off;
//   - start all of them with the new list.
//
// [sqllock.Fence] works with a lock of a shard that is a Session. All tokens of
// a key come from its one shard, so they compare, wherever the guarded data is.
// After a change of the list they do not: Fence replaces a row of another
// system without comparison.
//
// On PostgreSQL a Session notices another one with a different secret for the
// same namespace ([sqllock.Namespace.Keyed]). It does so only on a shard that
// both use.
//
// Invariant: the list never changes, so a Locker needs no mutex of its own.
type Locker struct {
	shards []member
	groups
}

// A member is one shard of a Locker.
type member struct {
	sqllock.Locker
	several several // the Locker; nil if it takes one key at a time
	seed    uint64  // of its place in the list, different for each
}

// A several can take the first free one of several keys, as [*sqllock.Session] and
// [*sqllock.Memory] can.
type several interface {
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
	LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// New returns a Locker over lockers, in the order that the whole fleet has.
// They are mostly Sessions on different databases. The caller closes them.
//
// New panics if there are none, or if one is nil or itself a Locker of this
// package: two layers that choose alike would leave shards without keys.
func New(lockers ...sqllock.Locker) *Locker {
	if len(lockers) == 0 {
		panic("shard: New needs a Locker at least")
	}
	s := &Locker{shards: make([]member, len(lockers))}
	for i, l := range lockers {
		if inside.IsNil(l) {
			panic("shard: New needs Lockers that are not nil")
		}
		if _, ok := l.(*Locker); ok {
			panic("shard: New cannot shard a Locker of this package: give it all Lockers in one list")
		}
		several, _ := l.(several)
		s.shards[i] = member{l, several, mix(golden * uint64(i+1))}
	}
	s.groups = inside.GroupsBy(s.tryEach)
	return s
}

// TryLock acquires key on its shard without waiting. Its errors are that
// shard's.
func (s *Locker) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return s.shards[s.Index(key)].TryLock(ctx, key)
}

// Lock waits for key on its shard. Its errors are that shard's.
func (s *Locker) Lock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	return s.shards[s.Index(key)].Lock(ctx, key)
}

// Index returns the place of key's shard in the list, from 0. It is the
// database in which to look for the holder, or to keep the data that
// [sqllock.Fence] guards.
//
// Index uses rendezvous hashing: each shard has a number for the key, and the
// highest wins. A new shard wins its share and changes nothing between the
// others. See D. G. Thaler and C. V. Ravishankar, "Using Name-Based Mappings to
// Increase Hit Rates" (IEEE/ACM Transactions on Networking, 1998).
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

// An id is what the database sees of a key: two keys exclude each other if
// their ids are equal.
type id struct {
	number int64
	pair   bool
}

func idOf(key sqllock.Key) id {
	_, _, pair := key.Pair()
	return id{key.Int64(), pair}
}

// hashKey returns the hash of a key. It and mix must never change: two versions
// that differ would hold one key at once.
func hashKey(key id) uint64 {
	if key.pair {
		return mix(uint64(key.number) ^ golden)
	}
	return mix(uint64(key.number))
}

// golden is 2⁶⁴ divided by the golden ratio, and odd.
const golden = 0x9e3779b97f4a7c15

// mix is one to one, and each bit of its result depends on each bit of x. It is
// the last step of SplitMix64: G. L. Steele, D. Lea and C. H. Flood, "Fast
// Splittable Pseudorandom Number Generators" (OOPSLA 2014). The constants are
// those of D. Stafford's Mix13.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
