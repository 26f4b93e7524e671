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
	Program string        `json:"-"` // that the process runs, built by package older; empty: this one
	Lease   time.Duration // of the Session; its heartbeat is the default
	Seed    uint64

	Database sqllock.Dialect // of Direct; empty: PostgreSQL

	Callers int // of one key, or of one of several
	Keys    int // that they want
	Mixed   int // further callers, of readers, sets, limits and stacks

	Pause time.Duration // the longest of a caller between two calls; 0: 4 ms
	Look  time.Duration // how often a caller looks at a lock that it holds; 0: 0.5 ms
}

// sharesLocks reports whether the Session has readers' locks.
func (o Config) sharesLocks() bool {
	return !o.Leases && (o.Database == "" || o.Database == sqllock.PostgreSQL)
}

// A command is an order to a running process, as a line of JSON.
type command string

const (
	doRest  command = "rest"  // end the callers, and keep the session
	doProbe command = "probe" // take each key once
)

// A Status is what a process reports about itself many times a second. Counts
// are since it began.
type Status struct {
	At     history.Moment `json:"at"`
	LastOK history.Moment `json:"lastOK"` // when a call that brought a lock began

	Granted  int64 `json:"granted"`
	Held     int64 `json:"held"`     // ErrHeld
	Unserved int64 `json:"unserved"` // ErrUnavailable, ErrConfig or ErrNotExclusive
	Lost     int64 `json:"lost"`     // locks whose holders were told
	Written  int64 `json:"written"`  // behind the fence

	Rested bool    `json:"rested"`          // the callers have ended
	Probed bool    `json:"probed"`          // doProbe has been carried out
	Stuck  []int64 `json:"stuck,omitempty"` // keys that it could not take

	Holding     int    `json:"holding"`
	Connections uint64 `json:"connections"` // lost
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
