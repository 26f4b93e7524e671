package lockwatch

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A Diagnosis finds in Snapshots what [Watch] finds: late heartbeats and cycles
// of waits that last, and with [WithLongHeld] locks held for long. It is for
// callers that take the Snapshots themselves.
//
// It makes no requests and writes no log. [NewDiagnosis] makes one. One goroutine
// at a time may use it.
//
// Invariant: open holds the findings that have begun and not ended, in the order
// in which they began.
type Diagnosis struct {
	late, long time.Duration // as in watchOptions

	view   *View // of the last Snapshot
	open   []Finding
	seen   map[string]sighting     // the cycles of the last Snapshot
	since  map[string]time.Time    // when each lock was first seen; only if long is set
	leases map[int64]time.Duration // by session of a lease table: the longest time to its expiry that was seen
}

// NewDiagnosis returns a Diagnosis that has seen nothing yet. Of the options only
// [WithLate] and [WithLongHeld] matter.
func NewDiagnosis(opts ...WatchOption) *Diagnosis {
	o := newWatchOptions(opts)
	return &Diagnosis{late: o.late, long: o.long}
}

// Look takes in s and returns the findings that have begun, and those that are
// over. Look remembers the Snapshot before, so the Snapshots must come in the
// order of their times. No Finding is a [WatchFailed].
func (d *Diagnosis) Look(s *Snapshot) (begun, over []Finding) {
	d.view = NewView(s)
	found := slices.Concat(d.lateLocks(s), d.lateLeases(s), d.cycles(), d.longHeld(s))
	now := make(map[string]Finding, len(found))
	for _, f := range found {
		now[f.id()] = f
	}
	was := make(map[string]bool, len(d.open))
	var open []Finding
	for _, f := range d.open {
		id := f.id()
		was[id] = true
		current, lasts := now[id]
		if !lasts {
			f.Over = true
			over = append(over, f)
			continue
		}
		current.Since = f.Since
		open = append(open, current)
	}
	for _, f := range found {
		if !was[f.id()] {
			if f.Since.IsZero() {
				f.Since = s.At
			}
			begun = append(begun, f)
		}
	}
	d.open = append(open, begun...)
	return begun, over
}

// View returns the last Snapshot as a View, and nil before the first.
func (d *Diagnosis) View() *View { return d.view }

// Open returns the findings that have begun and not ended, as the last Snapshot
// shows them, in the order in which they began.
func (d *Diagnosis) Open() []Finding { return slices.Clone(d.open) }

// lateLocks finds the held locks whose heartbeat is late.
func (d *Diagnosis) lateLocks(s *Snapshot) (found []Finding) {
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.Registration == nil || s.At.Sub(h.Registration.Heartbeat) < d.lateAge(h.Registration) {
			continue
		}
		kind := RegistryNotWritten
		if h.Process.silentFor(d.lateAge(h.Registration), s.At) {
			kind = LateHeartbeat
		}
		found = append(found, Finding{Kind: kind, Since: h.Registration.Heartbeat, Holder: h})
	}
	return found
}

// lateLeases finds the locks of a lease table that were not renewed in time, or
// have expired. The table does not say how long a lease is. Each renewal puts its
// end that far ahead, so the longest time to an end that was seen is close to it.
func (d *Diagnosis) lateLeases(s *Snapshot) (found []Finding) {
	leases := make(map[int64]time.Duration)
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.Lease == nil {
			continue
		}
		left := h.Lease.Expires.Sub(s.At)
		lease := max(left, d.leases[h.Lease.Session])
		leases[h.Lease.Session] = lease
		if lease-left >= cmp.Or(d.late, lease/2) {
			found = append(found, Finding{Kind: LateHeartbeat, Since: h.Lease.Expires.Add(-lease), Holder: h})
		}
	}
	d.leases = leases
	for i := range s.Expired {
		found = append(found, Finding{Kind: LateHeartbeat, Since: s.Expired[i].Lease.Expires, Holder: &s.Expired[i]})
	}
	return found
}

// silentFor reports whether the server process has waited for its client for the
// duration age. An active process that reads has received a part of a statement,
// and the rest was lost.
func (p Process) silentFor(age time.Duration, at time.Time) bool {
	waits := strings.HasPrefix(p.State, "idle") || p.State == "active" && p.WaitEvent == "ClientRead"
	return waits && !p.StateSince.IsZero() && at.Sub(p.StateSince) >= age
}

// lateAge returns the age from which on the heartbeat of r is late.
func (d *Diagnosis) lateAge(r *Registration) time.Duration {
	if d.late > 0 {
		return d.late
	}
	return r.Expires.Sub(r.Heartbeat) / 2
}

// A sighting is a cycle that each look since the first one has shown.
type sighting struct {
	first Cycle
	lasts bool // a later look has shown it, and each of its polling callers had a heartbeat in between
}

// cycles finds the cycles that last. One look is not enough: a polling caller is
// known as of its last heartbeat, and the server lists its waiters a moment after
// its locks.
func (d *Diagnosis) cycles() (found []Finding) {
	now := make(map[string]sighting)
	for _, c := range d.view.Cycles {
		id := c.id()
		sight, known := d.seen[id]
		if !known {
			sight.first = c
		}
		sight.lasts = sight.lasts || known && c.newerThan(sight.first)
		now[id] = sight
		if sight.lasts {
			found = append(found, Finding{Kind: WaitCycle, Since: c.Since, Cycle: &c})
		}
	}
	d.seen = now
	return found
}

// longHeld finds the locks that are held for too long.
func (d *Diagnosis) longHeld(s *Snapshot) (found []Finding) {
	if d.long == 0 {
		return nil
	}
	since := make(map[string]time.Time, len(s.Holders))
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.SecretCheck {
			continue
		}
		id := h.id()
		first, known := d.since[id]
		if !known {
			first = s.At
		}
		since[id] = first
		if acquired := h.acquired(); !acquired.IsZero() {
			first = acquired
		}
		if s.At.Sub(first) >= d.long {
			found = append(found, Finding{Kind: HeldLong, Since: first, Holder: h})
		}
	}
	d.since = since
	return found
}
