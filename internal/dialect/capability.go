package dialect

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// A Driver is a driver of database/sql that brings its own dialect. Only code
// of this module can implement it: simulated servers do.
type Driver interface {
	// Dialect returns the dialect for each database of the driver.
	Dialect() Dialect
}

// A BootClock is a Dialect that runs on a simulated machine.
type BootClock interface {
	// BootTime returns the time by a clock of the machine that goes on while
	// the machine is suspended.
	BootTime() time.Duration
}

// A Surveyor is a Session that can measure how full the server's lock table is.
type Surveyor interface {
	// LockTable reads the present state. Its error is a *Failure.
	LockTable() (LockTable, error)
}

// A LockTable is the state of the table of locks that all clients of a server
// share.
type LockTable struct {
	Size     int // places
	Used     int // places in use, by any client
	Sessions int // connections whose names are those of Sessions
}

// A Backend is a Session that has a server process of its own.
type Backend interface {
	// Process returns the session's server process. It is the same for the life
	// of the session.
	Process() Process
}

// A Terminator is a Session that can end the server processes of earlier
// sessions, which still hold their locks.
type Terminator interface {
	Backend

	// Terminate ends those processes of left that still exist, and returns
	// them. The server ends each a moment later. Its error is a *Failure.
	Terminate(left []Process) (there []Process, err error)
}

// A Process identifies one server process. The server may give its PID to a
// later process, which has another Start.
type Process struct {
	PID   int64 // 0: not known, or a pooler is between
	Start int64 // microseconds since 1970, by the server's clock; 0 where PIDs are not used again
}

// A SecretCheck is a namespace and the secret with which a session makes its
// keys.
//
// Invariant: no two sessions of a database use checks of one Class with
// different Fingerprints at the same time.
type SecretCheck struct {
	Class       int32 // the namespace
	Fingerprint int32 // the secret
}

// SecretCheckOf returns the check of a namespace and of the secret with a
// fingerprint. Its Class is the first four bytes of
// SHA-256("latchkey secret:" + namespace).
func SecretCheckOf(namespace string, fingerprint uint32) SecretCheck {
	sum := sha256.Sum256([]byte("latchkey secret:" + namespace))
	return SecretCheck{int32(binary.BigEndian.Uint32(sum[:])), int32(fingerprint)}
}

// A SecretChecker is a Session that can find out whether all sessions of the
// database make the keys of a namespace with one secret.
type SecretChecker interface {
	// UseSecret makes the session a user of c until its end. It reports a conflict
	// if another session uses the same Class with another Fingerprint. Then this
	// session is not a user. It changes nothing if the session is a user already.
	//
	// After an error the session may be a user of c or not. The error is like that
	// of Exchange.
	UseSecret(c SecretCheck) (conflict bool, err error)
}
