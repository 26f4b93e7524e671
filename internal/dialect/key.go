package dialect

// A Space is one of PostgreSQL's two advisory key spaces. Keys of different
// spaces never exclude each other.
type Space uint8

// The key spaces.
const (
	Bigint  Space = iota // pg_advisory_lock(bigint)
	TwoInts              // pg_advisory_lock(int, int): the first in the id's high 32 bits

	Shared // with one of these: not the key itself but a reader's lock on it
)

// A Key is what a database sees of a key: two names with one Key exclude each
// other.
type Key struct {
	Space Space
	ID    int64
}

// Shared is a reader's lock on k, which excludes that of k itself and no other
// reader's.
func (k Key) Shared() Key { return Key{k.Space | Shared, k.ID} }

// IsShared reports whether k is a reader's lock.
func (k Key) IsShared() bool { return k.Space&Shared != 0 }

// Exclusive is the key on which k may be a reader's lock.
func (k Key) Exclusive() Key { return Key{k.Space &^ Shared, k.ID} }
