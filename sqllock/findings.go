package sqllock

import (
	"slices"
	"time"
)

// A diagnosis is what one look after another shows. It remembers what was seen before, and asks nothing.
//
// Invariant: open is what was told to have begun and not yet to be over, in the order in which it began.
type diagnosis struct {
	late, long time.Duration // of inspectOptions

	open  []Finding
	rings map[string]bool      // cycles of the look before
	since map[lockID]time.Time // when locks were first seen, if long matters
}

// look takes in what s shows and returns what is new, and what is over.
func (d *diagnosis) look(s *Snapshot) (news, over []Finding) {
	found := slices.Concat(d.lateLocks(s), d.cycles(s), d.longHeld(s))
	now := make(map[episode]Finding, len(found))
	for _, f := range found {
		now[f.episode()] = f
	}
	was := make(map[episode]bool, len(d.open))
	var open []Finding
	for _, f := range d.open {
		e := f.episode()
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
		if !was[f.episode()] {
			f.Since = s.At
			news = append(news, f)
		}
	}
	d.open = append(open, news...)
	return news, over
}

// lateLocks is the locks whose heartbeat is late. That their process holds them is what makes them holders.
func (d *diagnosis) lateLocks(s *Snapshot) (found []Finding) {
	for i, h := range s.Holders {
		if h.Registration != nil && s.At.Sub(h.Registration.Heartbeat) >= d.lateAge(h.Registration) {
			found = append(found, Finding{Kind: LateHeartbeat, Holder: &s.Holders[i]})
		}
	}
	return found
}

// lateAge is the age at which the heartbeat of r is late.
func (d *diagnosis) lateAge(r *Registration) time.Duration {
	if d.late > 0 {
		return d.late
	}
	return r.Expires.Sub(r.Heartbeat) / 2
}

// cycles is those that the look before showed too: what polls is known as of a heartbeat, and who waits in
// the server may have been looked at a moment after the locks.
func (d *diagnosis) cycles(s *Snapshot) (found []Finding) {
	rings := make(map[string]bool)
	for _, c := range s.Cycles() {
		id := c.String()
		rings[id] = true
		if d.rings[id] {
			found = append(found, Finding{Kind: WaitCycle, Cycle: &c})
		}
	}
	d.rings = rings
	return found
}

func (d *diagnosis) longHeld(s *Snapshot) (found []Finding) {
	if d.long == 0 {
		return nil
	}
	seen := make(map[lockID]time.Time, len(s.Holders))
	for i := range s.Holders {
		h := &s.Holders[i]
		if h.Claim {
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
