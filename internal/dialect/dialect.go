// Package dialect is the interface between the engine, in internal/session, and
// a database.
//
// The engine is the same for every kind of database. It opens a Session by a
// Dialect, sends it one Batch after the other, and reads Failures. The packages
// below this one implement the interface:
//
//	postgres    advisory locks of PostgreSQL
//	mysql       GET_LOCK of MySQL and MariaDB
//	leasetable  rows of a table, in SQLite and in PostgreSQL behind a pooler
//	choose      which of them a database needs
//	usertx      fences and watermarks in a caller's own transaction
//	dbconn      connections of database/sql and the drivers below them
//	errcode     error codes of drivers
package dialect

import (
	"context"
	"database/sql"
	"net"
	"time"
)

// ConnectTimeout bounds one attempt of the engine to connect.
const ConnectTimeout = 5 * time.Second

// A Dialect opens sessions on one kind of database.
type Dialect interface {
	// Open takes the connections of db that it needs, proves that locks exclude
	// there, and sets a session up. Its error is a *Failure or that of ctx.
	//
	// The end of ctx ends the attempt. After Open has returned, ctx has no
	// effect on the session.
	Open(ctx context.Context, db *sql.DB, set Settings) (Session, error)

	// Traits returns what the engine must know before it opens a session.
	Traits() Traits
}

// Traits are the differences between kinds of databases that the engine knows.
type Traits struct {
	Name           string        // the kind of database: a constant of type sqllock.Dialect
	Lease          time.Duration // the default
	HeldPerSession int           // more locks than these are faster on another session; 0: any number is as fast on one
	CloseTimeout   time.Duration // bounds Destroy
	Readers        bool          // Release and Try of a Batch may have shared locks
	Registers      bool          // its Sessions are Registrars of package postgres
	ChecksSecrets  bool          // its Sessions are SecretCheckers
}

// Settings are the engine's demands on a session.
type Settings struct {
	Lease            time.Duration      // the database frees the locks of a session that is silent for so long
	StatementTimeout time.Duration      // the database gives up on a statement after so long
	Proof            time.Duration      // bounds each question of the proof
	Socket           func(any) net.Conn // finds the socket of a driver's connection; nil: for known drivers only
}

// A Session holds locks in the database. They last until they are released or
// the session ends.
//
// One goroutine at a time calls Exchange, Held and Token.
// Any goroutine may call the other methods.
//
// Invariant: no method takes a context, since a driver that cancels a statement
// ends the connection and every lock on it.
type Session interface {
	// Exchange carries out b in one round trip, releases first, and fills in
	// the responses. Without an error every response is right, and comes from
	// the session that Open opened. Errors are *Failures:
	//
	//   - Statement, Full: the session lives. Only Held knows what it holds.
	//   - others: the session is lost with all its locks.
	Exchange(b *Batch) error

	// Held lists the keys that the session holds, as the database knows it.
	// Secret checks may be among them, as shared locks. Its error is like that
	// of Exchange.
	Held() ([]Key, error)

	// Token returns a token for all locks that the session holds at this
	// moment. It changes no lock. Its error is like that of Exchange.
	Token() (Token, error)

	// ReservedToken returns a token like Token's without a round trip, if an
	// exchange has reserved one. It is good for each lock that is held both
	// before and after the call.
	ReservedToken() (Token, bool)

	// Room returns how many keys one Batch may carry.
	Room() int

	// Socket returns the session's connection to the server, to be watched, or
	// nil if the driver does not show it.
	Socket() net.Conn

	// Abort closes the socket under a call in flight, if it is known, so that
	// the call returns. It does not wait.
	Abort()

	// Destroy ends the session. It closes the connection instead of giving it
	// back to the pool. It waits for a call in flight.
	Destroy()
}

// Defaults of Traits.
const (
	DefaultLease           = 10 * time.Second
	ConnectionCloseTimeout = 100 * time.Millisecond // CloseTimeout where a session is a connection
	HeldPerConnection      = 1000                   // HeldPerSession where a statement costs more for each lock that its connection holds
)
