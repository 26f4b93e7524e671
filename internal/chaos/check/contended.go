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
	waits      bool
	until      history.Moment // its deadline, if it waits; 0: none
	unlock     bool
	number     int64 // the same for the Tries of one call for several keys; 0: it has one
	result     history.Result
}

func (r *record) calls() (calls []call) {
	for _, y := range r.tries {
		calls = append(calls, call{process: y.Process, begin: y.Begin, end: y.End, waits: y.Waits, until: y.Until, number: y.Call, result: y.Result})
	}
	return calls
}

// A tally counts calls, each once, however many keys it was for.
type tally struct {
	*Report
	several map[int64]outcome // by number
}

// An outcome is what is known of a call for several keys.
type outcome struct {
	result              history.Result // OK if it brought one of them
	contended, troubled bool
}

// count counts calls and locks, and checks how long calls took and how they ended.
func (s *sweep) count(rs *records) {
	t := &tally{s.report, map[int64]outcome{}}
	for _, r := range rs.keys {
		t.Keys++
		t.Locks += len(r.locks)
		var calls, stuck []call
		for _, c := range append(r.calls(), r.unlocks()...) {
			s.long(c, r.key)
			if s.cut.touch(c.process, c.begin, c.end) {
				stuck = append(stuck, c)
			} else {
				calls = append(calls, c)
			}
		}
		for i, hit := range contended(calls) {
			t.add(calls[i], hit, hit && s.trouble.touch(calls[i].begin, calls[i].end))
		}
		for _, c := range stuck {
			t.add(c, false, false)
		}
	}
	for _, o := range t.several {
		t.sum(t.Tries, o)
	}
}

func (r *record) unlocks() (calls []call) {
	for _, l := range r.locks {
		if l.UnlockBegin != 0 && l.Ended != 0 {
			calls = append(calls, call{process: l.Process, begin: l.UnlockBegin, end: l.Ended, unlock: true, result: l.Unlock})
		}
	}
	return calls
}

func (t *tally) add(c call, contended, troubled bool) {
	of := outcome{c.result, contended, troubled}
	switch {
	case c.unlock:
		t.sum(t.Unlocks, of)
	case c.number == 0:
		t.sum(t.Tries, of)
	default:
		if before, ok := t.several[c.number]; ok {
			if before.result == history.OK {
				of.result = history.OK
			}
			of.contended, of.troubled = of.contended || before.contended, of.troubled || before.troubled
		}
		t.several[c.number] = of
	}
}

func (t *tally) sum(results map[history.Result]int, o outcome) {
	t.Operations++
	results[o.result]++
	if o.contended {
		t.Contended++
	}
	if o.troubled {
		t.Troubled++
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
