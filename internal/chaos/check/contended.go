package check

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A call is a Try, or an Unlock that returned.
type call struct {
	process    int
	begin, end history.Moment
}

// WithTrouble tells when there was trouble: from the beginning of a fault until
// every process served again. It may be given several times.
func WithTrouble(from, to history.Moment) Option {
	return func(s *sweep) { s.trouble.add(from, to) }
}

// count adds r's calls and locks.
func (rep *Report) count(r *record, trouble *spans) {
	rep.Keys++
	rep.Locks += len(r.locks)
	var calls []call
	for _, t := range r.tries {
		rep.Tries[t.Result]++
		calls = append(calls, call{t.Process, t.Begin, t.End})
	}
	for _, l := range r.locks {
		if l.UnlockBegin != 0 && l.Ended != 0 {
			rep.Unlocks[l.Unlock]++
			calls = append(calls, call{l.Process, l.UnlockBegin, l.Ended})
		}
	}
	rep.Operations += len(calls)
	for i, hit := range contended(calls) {
		if !hit {
			continue
		}
		rep.Contended++
		if trouble.touch(calls[i].begin, calls[i].end) {
			rep.Troubled++
		}
	}
}

// contended sorts calls, and is which of them were overlapped by one of another
// process.
func contended(calls []call) (hit []bool) {
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.begin, b.begin) })
	hit = make([]bool, len(calls))

	// By one that began before: the call that ends last of all before, and the
	// one that ends last of all processes but that one's.
	var last, other call
	for i, c := range calls {
		rival := last
		if last.process == c.process {
			rival = other
		}
		hit[i] = rival.end >= c.begin && rival.end != 0
		switch {
		case c.process == last.process:
			last.end = max(last.end, c.end)
		case c.end > last.end:
			last, other = c, last
		case c.end > other.end:
			other = c
		}
	}

	// By one that began later: the next of another process.
	next := len(calls)
	for i := len(calls) - 1; i >= 0; i-- {
		if i+1 < len(calls) && calls[i+1].process != calls[i].process {
			next = i + 1
		}
		if next < len(calls) && calls[next].begin <= calls[i].end {
			hit[i] = true
		}
	}
	return hit
}
