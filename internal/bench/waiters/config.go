// Package waiters has several processes wait for the same locks. A process is
// the running program once more: its main calls [Main] first.
package waiters

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// How a process waits.
const (
	Session      = "session"       // with Lock of one Session
	Unwatched    = "unwatched"     // likewise, where the Session does not see its socket
	AdvisoryLock = "advisory lock" // with pg_advisory_lock, on a pooled connection each
)

// Config is what each process does.
type Config struct {
	How         string
	Postgres    string // DSN
	Connections int    // of the pool of AdvisoryLock; a caller waits for a free one first
	Callers     int
	Keys        int           // each caller takes one of them at random, again and again
	Hold        time.Duration // how long it keeps it
	Apart       bool          // caller i takes key i alone, and rests for up to four times Hold after it; else see Keys
	WarmUp      time.Duration
	Measure     time.Duration
}

// An Outcome is the result of all processes.
type Outcome struct {
	Grants  []int64 // of each process, within the time measured
	Errors  int64
	First   string        // text of the first error
	Elapsed time.Duration // that was measured, on average
	CPU     time.Duration // of all processes together, while measured

	// Waits is how long callers waited for locks that were granted, in
	// nanoseconds.
	Waits *hdrhistogram.Histogram

	// HandOvers is the time from an Unlock in one process to the grant in
	// another that waited by then, in nanoseconds. Only with Apart.
	HandOvers *hdrhistogram.Histogram
}

// Total is how many locks were granted.
func (o *Outcome) Total() (total int64) {
	for _, n := range o.Grants {
		total += n
	}
	return total
}

// Shares is the part of all grants that the process with the fewest and that
// with the most had; of four that are equal, both are 0.25.
func (o *Outcome) Shares() (least, most float64) {
	total := o.Total()
	if total == 0 {
		return 0, 0
	}
	least = 1
	for _, n := range o.Grants {
		share := float64(n) / float64(total)
		least, most = min(least, share), max(most, share)
	}
	return least, most
}

// A report is what a process writes to its standard output when it is done.
type report struct {
	Grants  int64
	Errors  int64
	First   string
	Elapsed time.Duration
	CPU     time.Duration
	Waits   []byte // encoded
	Holds   []hold // with Apart, while measured
}
