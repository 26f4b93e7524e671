package check

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Telling is how the victims of a row's faults learnt that they had lost what
// they held when the fault began. The times are from then, and so hold the time
// that it took to make the fault.
type Telling struct {
	Row  int
	Name string

	Locks  int // held when a fault began, and lost to it
	Before int // of them, told before the next grant of the key had returned, or with none
	Woke   int // told after it by a process that was frozen, and that had not believed it any more
	After  int // told after it

	Max, P50, P99 time.Duration

	times []time.Duration
}

// InTime is how many were told before somebody else had the key, or could not do
// anything in between.
func (t *Telling) InTime() int { return t.Before + t.Woke }

// WithTelling has the Tellings of rows made.
func WithTelling(rows ...int) Option {
	return func(s *sweep) { s.told = append(s.told, rows...) }
}

func (s *sweep) tellings(rs *records) {
	for i, f := range rs.faults {
		if !slices.Contains(s.told, f.Row) {
			continue
		}
		t := s.report.telling(f)
		until := nextOn(rs.faults[i+1:], f.Process, rs.last+1)
		for _, r := range rs.keys {
			l := r.heldBy(f)
			if l == nil || l.Told == 0 || l.Told >= until {
				continue
			}
			t.Locks++
			t.times = append(t.times, span(f.Begin, l.Told))
			switch next := s.next(r, l); {
			case next == nil || l.Told <= next.granted:
				t.Before++
			case l.seen() < next.granted && s.frozen(l.Process, l.seen(), l.Told):
				t.Woke++
			default:
				t.After++
			}
		}
	}
	for _, t := range s.report.Tellings {
		t.P50, t.P99, t.Max = summary(t.times)
	}
}

// nextOn is when the first of faults that may touch process begins; none: last.
func nextOn(faults []history.Fault, process int, last history.Moment) history.Moment {
	for _, f := range faults {
		if process == 0 || f.Process == 0 || f.Process == process {
			return f.Begin
		}
	}
	return last
}

// telling is that of f's row, made at its first fault.
func (r *Report) telling(f history.Fault) *Telling {
	for _, t := range r.Tellings {
		if t.Row == f.Row {
			return t
		}
	}
	t := &Telling{Row: f.Row, Name: f.Name}
	r.Tellings = append(r.Tellings, t)
	return t
}
