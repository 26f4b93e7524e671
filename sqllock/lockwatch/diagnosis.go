package lockwatch

import (
	"slices"
	"strings"
	"time"
)

// A diagnosis compares each look with the one before. It asks nothing.
//
// Invariant: open is what was told to have begun and not yet to be over, in the order in which it began.
type diagnosis struct {
	late, long time.Duration // of inspectOptions

	open  []Finding
	seen  map[string]sighting  // cycles of the look before
	since map[lockID]time.Time // when locks were first seen, if long matters
}

// look takes in what s shows and returns what is new, and what is over.
func (d *diagnosis) look(s *Snapshot) (news, over []Finding) {
	found := slices.Concat(d.lateLocks(s), d.cycles(s), d.longHeld(s))
	now := make(map[findingID]Finding, len(found))
	for _, f := range found {
		now[f.findingID()] = f
	}
	was := make(map[findingID]bool, len(d.open))
	var open []Finding
	for _, f := range d.open {
		e := f.findingID()
		was[e] = true
		current, still := now[e]
		if !still {
			f.Over = true
			over = append(over, f)
			continue
		}
		current.Since = f.Since
		open = append(open, current)
	}
	for _, f := range found {
		if !was[f.findingID()] {
			f.Since = s.At
			news = append(news, f)
		}
	}
	d.open = append(open, news...)
	return news, over
}

// lateLocks is the locks whose heartbeat is late. That their process holds them is what makes them holders.
func (d *diagnosis) lateLocks(s *Snapshot) (found []Finding) {
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.Registration == nil || s.At.Sub(h.Registration.Heartbeat) < d.lateAge(h.Registration) {
			continue
		}
		kind := RegistryNotWritten
		if h.Process.silentFor(d.lateAge(h.Registration), s.At) {
			kind = LateHeartbeat
		}
		found = append(found, Finding{Kind: kind, Holder: h})
	}
	return found
}

// silentFor reports whether the server has waited for p's client for so long. A
// process that is active and reads has got a part of a statement: the rest was lost.
func (p Process) silentFor(age time.Duration, at time.Time) bool {
	waits := strings.HasPrefix(p.State, "idle") || p.State == "active" && p.WaitEvent == "ClientRead"
	return waits && !p.StateSince.IsZero() && at.Sub(p.StateSince) >= age
}

// lateAge is the age at which the heartbeat of r is late.
func (d *diagnosis) lateAge(r *Registration) time.Duration {
	if d.late > 0 {
		return d.late
	}
	return r.Expires.Sub(r.Heartbeat) / 2
}

// A sighting is a cycle that was seen without a gap.
type sighting struct {
	first Cycle // when it was first seen
	lasts bool  // it was seen again, and each who polls in it has had a heartbeat since
}

// cycles is those that last: what polls is known as of a heartbeat, and who waits in
// the server may have been looked at a moment after the locks.
func (d *diagnosis) cycles(s *Snapshot) (found []Finding) {
	now := make(map[string]sighting)
	for _, c := range s.Cycles() {
		id := c.String()
		r, seen := d.seen[id]
		if !seen {
			r.first = c
		}
		r.lasts = r.lasts || seen && c.newerThan(r.first)
		now[id] = r
		if r.lasts {
			found = append(found, Finding{Kind: WaitCycle, Cycle: &c})
		}
	}
	d.seen = now
	return found
}

// newerThan is whether all who poll in c have had a heartbeat since the same cycle was old.
func (c Cycle) newerThan(old Cycle) bool {
	for i, w := range c.Waits {
		if !w.heartbeat.IsZero() && !w.heartbeat.After(old.Waits[i].heartbeat) {
			return false
		}
	}
	return true
}

func (d *diagnosis) longHeld(s *Snapshot) (found []Finding) {
	if d.long == 0 {
		return nil
	}
	seen := make(map[lockID]time.Time, len(s.Holders))
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.SecretCheck {
			continue
		}
		id := h.lockID()
		first, known := d.since[id]
		if !known {
			first = s.At
		}
		seen[id] = first
		if h.Registration != nil {
			first = h.Registration.Acquired
		}
		if s.At.Sub(first) >= d.long {
			found = append(found, Finding{Kind: HeldLong, Holder: h})
		}
	}
	d.since = seen
	return found
}
