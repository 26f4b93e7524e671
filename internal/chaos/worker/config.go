// Package worker is a process under test. It has a Session, callers that
// acquire, hold and release locks through it, and a history of what they saw. A
// process is the running program once more: its main calls [Main] first.
package worker

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Config says what a process does.
type Config struct {
	Process int           // its number in the history: no two processes share one
	Driver  string        // of database/sql
	DSN     string        // of the Session
	Direct  string        // DSN of the work: a pool of its own for fenced writes
	Leases  bool          // WithLeaseTable
	History string        // file to append to
	Lease   time.Duration // of the Session; its heartbeat is the default
	Callers int
	Keys    int           // that they want
	Pause   time.Duration // the longest of a caller between two calls; 0: 4 ms
	Look    time.Duration // how often a caller looks at a lock that it holds; 0: LookEvery
	Mixed   int           // callers beside them, of readers, sets, limits and stacks
	Brisk   int           // callers beside them, which hold for a moment
	Seed    uint64

	Services int             // callers of each package around sqllock: see services
	Database sqllock.Dialect // of Direct; empty: PostgreSQL
}

// sharesLocks reports whether the Session has readers' locks.
func (o Config) sharesLocks() bool {
	return !o.Leases && (o.Database == "" || o.Database == sqllock.PostgreSQL)
}

// A command is an order to a running process, as a line of JSON.
type command struct {
	Do string `json:"do"`
	N  int    `json:"n,omitempty"`
}

const (
	doDrain = "drain" // end, and report
	doFlood = "flood" // make N calls that are cancelled
	doRest  = "rest"  // end the callers, and keep the session
	doProbe = "probe" // take each key once
)

// A Status is what a process reports about itself many times a second. Counts
// are since it began.
type Status struct {
	At     history.Moment `json:"at"`
	LastOK history.Moment `json:"lastOK"` // when a call that brought a lock began

	Granted      int64 `json:"granted"`
	Held         int64 `json:"held"` // ErrHeld
	Unavailable  int64 `json:"unavailable"`
	NotExclusive int64 `json:"notExclusive"`
	Lost         int64 `json:"lost"`      // locks whose holders were told
	Written      int64 `json:"written"`   // behind the fence
	Fenced       int64 `json:"fenced"`    // writes that the fence refused
	Flooded      int64 `json:"flooded"`   // calls made by command, and returned
	Cancelled    int64 `json:"cancelled"` // of them, those that failed because of that

	Rested bool    `json:"rested"`          // the callers have ended
	Probed bool    `json:"probed"`          // doProbe has been carried out
	Stuck  []int64 `json:"stuck,omitempty"` // keys that it could not take

	Holding     int    `json:"holding"`
	Connected   bool   `json:"connected"`
	Connections uint64 `json:"connections"` // lost
	Watched     bool   `json:"watched"`     // a closed connection is noticed at once
}

// A Report is the last message of a process that was drained, after everything
// is closed.
type Report struct {
	Goroutines int    `json:"goroutines"` // more than there were at first
	Stacks     string `json:"stacks,omitempty"`
}

// A line is what a process writes to its standard output. One field is set.
type line struct {
	Status *Status `json:"status,omitempty"`
	Report *Report `json:"report,omitempty"`
}
