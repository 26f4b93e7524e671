package dialect

import "time"

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
