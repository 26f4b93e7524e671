//go:build linux

package round

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Result is what a round has found.
type Result struct {
	Index    int
	Server   string // versions, and the number of processors
	Took     time.Duration
	Outcomes []Outcome

	Operations int // calls
	Contended  int
	Locks      int
	Stored     int      // fenced writes in the database
	Fenced     int      // writes that the fence refused
	Violations []string // what was promised and did not hold

	Blind time.Duration // the longest between two looks of the observer around a change

	writes []check.Stored
	marks  []int64
}

// Stuck reports whether the cluster did not become whole, or the round had no
// regular end. Its last fault is stuck then. Not all of it was looked at, so no
// fault of the round counts.
func (r *Result) Stuck() bool {
	n := len(r.Outcomes)
	return n > 0 && r.Outcomes[n-1].Stuck != ""
}

// An Outcome is one fault with what it has done.
type Outcome struct {
	Row           int
	Begin         history.Moment
	End           history.Moment // when it was mended
	Settled       history.Moment // when each process served and the cluster was whole
	Reinitialized int            // standbys that Patroni did not rewind by itself

	Stuck string // why the cluster did not become whole, or the round had no regular end

	Lost     int             // locks
	Told     []time.Duration // from Begin until the holders of those held then were told
	Served   []time.Duration // from Begin until a process that was interrupted was granted locks again
	Spared   int             // processes that were not interrupted
	Overlaps int             // of two locks of a key
	Longest  time.Duration   // of these
	Excused  int             // more of them, while two nodes accepted writes
	News     int             // more of them, while a server ended its sessions, or HAProxy its connections
	Two      []time.Duration // for which two nodes accepted writes
	Missing  int             // writes that were acknowledged and are not stored

	Cancelled int // writes that were acknowledged when their context had ended, and are not stored, with synchronous_mode
	Minority  Minority
}
