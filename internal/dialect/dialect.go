// Package dialect is the words that each kind of database uses for locks that
// live as long as a session, behind one small interface: the engine in sqllock
// is the same for all.
package dialect

import (
	"context"
	"database/sql"
	"net"
	"time"
)

// A Space is one of PostgreSQL's two advisory key spaces. Keys of different
// spaces never exclude each other.
type Space uint8

// The key spaces.
const (
	Bigint  Space = iota // pg_advisory_lock(bigint)
	TwoInts              // pg_advisory_lock(int, int): the first in the id's high 32 bits

	shared // with one of these: not the key itself but a reader's lock on it
)

// A Key is what a database sees of a key: two names with one Key exclude each
// other.
type Key struct {
	Space Space
	ID    int64
}

// Shared is a reader's lock on k, which excludes that of k itself and no other
// reader's.
func (k Key) Shared() Key { return Key{k.Space | shared, k.ID} }

// IsShared reports whether k is a reader's lock.
func (k Key) IsShared() bool { return k.Space&shared != 0 }

// Exclusive is the key on which k may be a reader's lock.
func (k Key) Exclusive() Key { return Key{k.Space &^ shared, k.ID} }

// A Dialect speaks to one kind of database.
type Dialect interface {
	// Open takes what it needs of db, proves that locks exclude there and sets
	// the session up. Until it returns, ctx may end the attempt; afterwards ctx
	// has no meaning. The error is a *Failure, or ctx's.
	Open(ctx context.Context, db *sql.DB, set Settings) (Session, error)

	// Traits is what the engine must know before.
	Traits() Traits
}

// Traits is in what the kinds of databases differ for the engine.
type Traits struct {
	Lease   time.Duration // the default
	Spread  bool          // a lock held makes its session's statements dearer: many are better spread over several sessions
	Parting time.Duration // what the end of a session may take before it is cut short
	Readers bool          // it has readers' locks

	Registers bool // its Sessions are Registrars
}

// Settings is what the engine asks of a session.
type Settings struct {
	Lease            time.Duration      // the database frees the locks of a session silent for so long
	StatementTimeout time.Duration      // the database gives up on a statement of ours after so long
	Proof            time.Duration      // no answer to a question of the proof for so long is a refusal
	Socket           func(any) net.Conn // finds the socket of a driver's connection; nil: the known drivers
}

// A Session holds locks in the database until they are released or it ends.
//
// Exchange, Held, Claim and Token are called by one goroutine at a time; Abort and Socket by
// any.
type Session interface {
	// Exchange carries out b in one round trip, releases first, and fills in
	// its answers. After a nil error the session is the one that was opened,
	// and every answer is right. After an error of Kind Statement or Full the
	// session lives but what it holds is known only to Held; after any other,
	// what it held is lost. It takes no context: cancelling a statement would
	// end the session and every lock on it.
	Exchange(b *Batch) error

	// Held lists the keys that the session holds, by the database's account. Claims
	// may be among them, as readers' locks.
	Held() ([]Key, error)

	// Claim asks for claims, and gives others back that the session has. It
	// reports for each it asked for whether another session disputes it: then this
	// one has it not. After an error the session has none of either;
	// its kind is as Exchange's.
	Claim(wanted, dropped []Claim) (disputed []bool, err error)

	// Token is one for every lock that the session holds at this moment, and
	// does not change what it holds.
	Token() (Token, error)

	// Drawn is a token like Token's, without a question to the database, where an
	// exchange has brought some along. Any goroutine may call it; the token is good for the locks
	// that are held both before and after the call.
	Drawn() (Token, bool)

	// Room is how many keys a batch may carry.
	Room() int

	// Socket is the session's connection to the server for watching, or nil
	// where the driver does not let it be reached.
	Socket() net.Conn

	// Abort makes a call in flight return, by closing the socket under it,
	// where it can be reached. It does not wait.
	Abort()

	// Destroy ends the session: its connection is closed, not pooled. It waits
	// for a call in flight.
	Destroy()
}

// A Batch is what one round trip carries, and its answers.
type Batch struct {
	Release []Key   // give these back
	Try     []Key   // then take each of these that is free; these two may be readers' locks, where Traits says so
	Any     [][]Key // then, of each of these groups, take the first that is free; a group's keys share one Space
	All     [][]Key // then, of each of these sets, take all or none: from the first on, until one is not free

	NotHeld []Key // answer: of Release, what the session did not hold
	Busy    []Key // answer: of Try, what another session holds
	Won     []int // answer: for each of Any the index of what was taken, or -1
	Missing []int // answer: for each of All the index of the first that was not free, or -1: all are taken
}

// Reset empties b for its next use and keeps its memory.
func (b *Batch) Reset() {
	*b = Batch{
		Release: b.Release[:0], Try: b.Try[:0], Any: b.Any[:0], All: b.All[:0],
		NotHeld: b.NotHeld[:0], Busy: b.Busy[:0], Won: b.Won[:0], Missing: b.Missing[:0],
	}
}
