package dialect

import (
	"context"
	"net"
)

// A Prober is a Dialect that can find out whether bytes go to a server and come
// back, without a driver: a driver may be stuck in what it has begun.
type Prober interface {
	// Answers reports whether the server at address answers before ctx ends.
	Answers(ctx context.Context, address net.Addr) bool
}

// A LockTable is what a server says of the table of locks that all its clients
// share.
type LockTable struct {
	Size     int // places
	Used     int // places that are taken, by any client
	Sessions int // connections of lockers like ours
}

// A Surveyor is a Session that can look how full the server's lock table is.
type Surveyor interface {
	// LockTable looks. Its error is a *Failure.
	LockTable() (LockTable, error)
}

// A Process is one server process and no other. The server may give its PID
// to a later process, which has another Start.
type Process struct {
	PID   int64 // 0: not known, or a pooler is between
	Start int64 // microseconds since 1970, by the server's clock
}

// A Terminator is a Session that can end the server processes of earlier
// sessions, which still hold their locks.
type Terminator interface {
	// Process is the session's server process.
	Process() Process

	// Terminate ends those of left that are still there, and returns them: the
	// server ends each a moment later. Its error is a *Failure.
	Terminate(left []Process) (there []Process, err error)
}
