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
	Lease        time.Duration // the default
	Spread       bool          // a lock held makes its session's statements dearer: many are better spread over several sessions
	CloseTimeout time.Duration // what the end of a session may take before it is cut short
	Readers      bool          // it has readers' locks

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
// Exchange, Held, SecretCheck and Token are called by one goroutine at a time; Abort and Socket by
// any.
type Session interface {
	// Exchange carries out b in one round trip, releases first, and fills in
	// its answers. After a nil error the session is the one that was opened,
	// and every answer is right. After an error of Kind Statement or Full the
	// session lives but what it holds is known only to Held; after any other,
	// what it held is lost. It takes no context: cancelling a statement would
	// end the session and every lock on it.
	Exchange(b *Batch) error

	// Held lists the keys that the session holds, by the database's account. Checks
	// may be among them, as readers' locks.
	Held() ([]Key, error)

	// CheckSecrets asks for checks, and gives others back that the session has. It
	// reports for each it asked for whether another session conflictsWith it: then this
	// one has it not. After an error the session has none of either;
	// its kind is as Exchange's.
	CheckSecrets(wanted, dropped []SecretCheck) (conflicts []bool, err error)

	// Token is one for every lock that the session holds at this moment, and
	// does not change what it holds.
	Token() (Token, error)

	// ReservedToken is a token like Token's, without a question to the database, where an
	// exchange has brought some along. Any goroutine may call it; the token is good for the locks
	// that are held both before and after the call.
	ReservedToken() (Token, bool)

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

const (
	DefaultLease = 10 * time.Second
	FriendlyEnd  = 100 * time.Millisecond // of a connection
)
