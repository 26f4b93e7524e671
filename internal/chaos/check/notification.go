package check

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Notification says how the victims of a row's faults were told that they had
// lost what they held when the fault began. The times run from that moment and
// include the time that it took to make the fault.
//
// A lock counts for the first fault during which it was held. If its process
// was frozen and the lock was seen valid afterwards, it counts for the next
// fault.
type Notification struct {
	Row  int
	Name string

	Locks    int // held when a fault began, whose holders were told
	Before   int // of them, told before the next grant of the key had returned, or without one
	Woke     int // told after it, as soon as their process woke up, without a look in between
	After    int // told after it
	Returned int // given back by holders that had not been told
	Untold   int // with neither in the history: their processes were killed

	Max, P50, P99 time.Duration
	Listeners     int           // of Locks, whose holders relied on their contexts
	Heard         time.Duration // by half of the listeners

	times, heard []time.Duration
}

// InTime counts the holders that were told before another caller had the key,
// or that could not run in between.
func (t *Notification) InTime() int { return t.Before + t.Woke }

func (s *sweep) notifications(rs *records) {
	of := map[*lock]history.Fault{} // for which each lock counts
	for _, f := range rs.faults {
		if !slices.Contains(s.told, f.Row) {
			continue
		}
		s.report.notification(f)
		for _, r := range rs.keys {
			l := r.heldBy(f)
			if l == nil {
				continue
			}
			if first, ok := of[l]; !ok || s.outlived(l, first) {
				of[l] = f
			}
		}
	}
	for _, r := range rs.keys {
		for _, l := range r.locks {
			if f, ok := of[l]; ok {
				s.countNotification(r, l, f)
			}
		}
	}
	for _, t := range s.report.Notifications {
		t.P50, t.P99, t.Max = summary(t.times)
		t.Heard, _, _ = summary(t.heard)
	}
}

// outlived reports whether l was seen valid when its process woke up from f.
func (s *sweep) outlived(l *lock, f history.Fault) bool {
	return s.frozen.touch(l.Process, f.Begin, f.Begin) && l.Valid > f.End
}

// countNotification counts how the holder of l was told of f.
func (s *sweep) countNotification(r *record, l *lock, f history.Fault) {
	t := s.report.notification(f)
	switch {
	case l.Told != 0:
	case l.UnlockBegin != 0:
		t.Returned++
		return
	default:
		t.Untold++
		return
	}
	t.Locks++
	took := span(f.Begin, l.Told)
	t.times = append(t.times, took)
	if l.Listens {
		t.Listeners++
		t.heard = append(t.heard, took)
	}
	switch next := s.next(r, l); {
	case next == nil || l.Told <= next.granted:
		t.Before++
	case l.seen() < next.granted && s.woke(l):
		t.Woke++
	default:
		t.After++
	}
}

// notification returns that of f's row. It is made at the row's first fault.
func (r *Report) notification(f history.Fault) *Notification {
	for _, t := range r.Notifications {
		if t.Row == f.Row {
			return t
		}
	}
	t := &Notification{Row: f.Row, Name: f.Name}
	r.Notifications = append(r.Notifications, t)
	return t
}
