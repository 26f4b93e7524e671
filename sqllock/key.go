package sqllock

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Key names what a lock protects: a user, a resource, a job.
//
// A Key holds a namespace and the number that the database sees. It never holds
// the name that it was made from, since a name may be personal data. Keys are
// comparable. The zero Key is ID(0).
//
// Two keys exclude each other if they have the same key space and the same
// 64-bit number, whatever their namespaces.
type Key struct {
	namespace   Namespace
	number      int64
	fingerprint uint32 // of the secret it was made with; 0: none
	space       dialect.Space
}

// db returns the key as the database sees it.
func (k Key) db() dialect.Key { return dialect.Key{Space: k.space, ID: k.number} }

// Int64 returns the number that stands for the key in the database, in each of
// its key spaces. It is the argument of pg_advisory_lock(bigint). For a key
// made by [Pair] it has the class in its high 32 bits and the object in its low
// ones; ID(k.Int64()) is another key then.
func (k Key) Int64() int64 { return k.number }

// Pair returns the two numbers of a key made by the function [Pair], which are
// the arguments of pg_advisory_lock(int, int). For any other key ok is false
// and both are 0: its number is [Key.Int64].
//
// Two keys exclude each other if Int64 and ok of Pair are equal for both.
func (k Key) Pair() (class, object int32, ok bool) {
	if k.space != dialect.TwoInts {
		return 0, 0, false
	}
	return int32(k.number >> 32), int32(k.number), true
}

// Namespace returns the namespace that the key was made in. It is empty for a
// key made by [ID] or [Pair]. It is safe to log.
func (k Key) Namespace() Namespace { return k.namespace }

// ID returns the key with this number, in PostgreSQL's bigint key space. It is
// for callers who number their locks themselves.
func ID(id int64) Key {
	return Key{space: dialect.Bigint, number: id}
}

// Pair returns a key in PostgreSQL's two-integer key space, in which
// pg_advisory_lock(class, object) locks. It never equals a key made by [ID] or
// by a Namespace.
func Pair(class, object int32) Key {
	return Key{space: dialect.TwoInts, number: int64(class)<<32 | int64(uint32(object))}
}

// A Namespace separates the keys of one purpose from those of another. With
// "export" and "payout" the same user may be locked twice at once.
//
// A Namespace must not be empty, and must contain neither ':' nor '#', which
// separate it from the name in the hashed text. Its methods panic otherwise.
type Namespace string

// Key returns the key of id in n. Its number is the first eight bytes,
// big-endian, of SHA-256(n + ":" + id). Every process, build and version
// computes the same.
//
// Two names that collide exclude each other, so a collision is safe. At a
// million live keys its chance is about 3 in 10⁸. If attackers choose ids, they
// could search for a collision: use [Namespace.Keyed].
func (n Namespace) Key(id string) Key {
	return n.SlotKey(id, 0)
}

// SlotKey returns the key of slot i of id, for limits of more than one at a
// time. Slot 0 is n.Key(id): after a limit was raised from one, the holders of
// the old limit still count. Slot i hashes n + "#" + i + ":" + id.
//
// SlotKey panics if i is negative.
func (n Namespace) SlotKey(id string, i int) Key {
	return n.hashed(n.prefix(i), id)
}

// Keyed returns n with HMAC-SHA-256 under secret in place of SHA-256. It is for
// names that attackers choose: without the secret they cannot find a name that
// collides with a victim's.
//
// Every process of a fleet needs the same secret. With different secrets two
// processes make different keys of one name, and both are granted. So on
// PostgreSQL's advisory locks each connection of a [Session] checks this once.
// The Session returns ErrNotExclusive for the keys of n while another Session on
// the same database uses n with another secret. A Session uses a secret from its
// first key under it until it is closed or its process ends, with traffic or
// without. With lease tables, MariaDB, MySQL and SQLite only
// lockdoctor.WithKeyedNamespace compares secrets. To change a secret, or to
// introduce one, stop all processes first.
//
// Keyed keeps a copy of secret. It panics if secret is empty.
func (n Namespace) Keyed(secret []byte) KeyedNamespace {
	n.mustBeValid()
	if len(secret) == 0 {
		panic("sqllock: Keyed needs a secret that is not empty")
	}
	k := KeyedNamespace{namespace: n, secret: string(secret)}
	// The fingerprint differs between secrets and is not 0. No other hashed text
	// begins with '#'.
	k.fingerprint = max(binary.BigEndian.Uint32(k.mac("#")), 1)
	return k
}

// A KeyedNamespace makes the keys of a [Namespace] under a secret.
// [Namespace.Keyed] returns one. The methods of the zero value panic.
type KeyedNamespace struct {
	namespace   Namespace
	secret      string
	fingerprint uint32
}

// Key returns the key of id, like [Namespace.Key] with HMAC-SHA-256.
func (k KeyedNamespace) Key(id string) Key {
	return k.SlotKey(id, 0)
}

// SlotKey returns the key of slot i of id, like [Namespace.SlotKey] with
// HMAC-SHA-256.
func (k KeyedNamespace) SlotKey(id string, i int) Key {
	key := k.namespace.key(k.mac(k.namespace.prefix(i) + ":" + id))
	key.fingerprint = k.fingerprint
	return key
}

func (k KeyedNamespace) mac(text string) []byte {
	mac := hmac.New(sha256.New, []byte(k.secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// prefix returns the hashed text of slot i before an id, without the ':'.
func (n Namespace) prefix(i int) string {
	n.mustBeValid()
	switch {
	case i < 0:
		panic("sqllock: SlotKey needs a slot number of zero or more")
	case i == 0:
		return string(n)
	}
	return string(n) + "#" + strconv.Itoa(i)
}

// hashed returns the key of the SHA-256 of prefix + ":" + id.
func (n Namespace) hashed(prefix, id string) Key {
	var array [192]byte // most names fit: no allocation
	text := append(array[:0], prefix...)
	text = append(text, ':')
	text = append(text, id...)
	sum := sha256.Sum256(text)
	return n.key(sum[:])
}

// key returns the key whose number is the first eight bytes of hash.
func (n Namespace) key(hash []byte) Key {
	return Key{namespace: n, space: dialect.Bigint, number: int64(binary.BigEndian.Uint64(hash))}
}

func (n Namespace) mustBeValid() {
	switch {
	case n == "":
		panic("sqllock: a Namespace must not be empty")
	case strings.ContainsAny(string(n), ":#"):
		panic("sqllock: a Namespace must hold neither ':' nor '#'")
	}
}
