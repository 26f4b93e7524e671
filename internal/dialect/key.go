package dialect

// A Space is one of PostgreSQL's two advisory key spaces, for exclusive or for
// shared locks. Keys of different spaces never exclude each other, except that
// a shared lock and an exclusive lock on one key do.
type Space uint8

// The key spaces.
const (
	Bigint  Space = 0 // pg_advisory_lock(bigint)
	TwoInts Space = 1 // pg_advisory_lock(int, int): the first in the id's high 32 bits

	// Shared is a bit: with it a Key stands for a shared lock, that of a
	// reader.
	Shared Space = 2
)

// A Key is the number by which a database knows a key. Two names with the same
// Key exclude each other.
type Key struct {
	Space Space
	ID    int64
}

// Shared returns the shared lock on k. It excludes the exclusive lock on k, and
// no other shared lock.
func (k Key) Shared() Key { return Key{k.Space | Shared, k.ID} }

// IsShared reports whether k is a shared lock.
func (k Key) IsShared() bool { return k.Space&Shared != 0 }

// Exclusive returns the exclusive lock on the key of k.
func (k Key) Exclusive() Key { return Key{k.Space &^ Shared, k.ID} }
