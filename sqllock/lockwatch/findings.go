package lockwatch

import "slices"

// A Diagnosis finds in Snapshots what [Watch] finds: late heartbeats and cycles
// of waits that last, and with [WithLongHeld] locks held for long. It is for
// callers that take the Snapshots themselves.
//
// It makes no requests and writes no log. [NewDiagnosis] makes one. One goroutine
// at a time may use it.
type Diagnosis struct{ d diagnosis }

// NewDiagnosis returns a Diagnosis that has seen nothing yet. Of the options only
// [WithLate] and [WithLongHeld] matter.
func NewDiagnosis(opts ...WatchOption) *Diagnosis {
	o := newWatchOptions(opts)
	return &Diagnosis{diagnosis{late: o.late, long: o.long}}
}

// Look takes in s and returns the findings that have begun, and those that are
// over. Look remembers the Snapshot before, so the Snapshots must come in the
// order of their times. No Finding is a [WatchFailed].
func (d *Diagnosis) Look(s *Snapshot) (begun, over []Finding) { return d.d.look(s) }

// Open returns the findings that have begun and not ended, as the last Snapshot
// shows them, in the order in which they began.
func (d *Diagnosis) Open() []Finding { return slices.Clone(d.d.open) }
