package check

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// calls counts calls, each once, however many keys it was for. It checks how
// long they took, and that none failed.
func (s *sweep) calls() {
	results := map[int64]history.Try{} // by Call: the line that was granted, or any
	count := func(t history.Try) {
		if s.report.Calls[t.Kind] == nil {
			s.report.Calls[t.Kind] = map[history.Result]int{}
		}
		s.report.Calls[t.Kind][t.Result]++
		s.report.Operations++
		if t.Result == history.Held {
			s.report.Contended++
		}
		if s.troubled.touch(t.Begin, t.End) {
			s.report.Troubled++
		}
		s.failed(t.Result, t.Begin)
	}
	for _, r := range s.keys {
		for _, t := range r.tries {
			s.long(t, false)
			if t.Call == 0 {
				count(t)
			} else if results[t.Call].Result != history.OK {
				results[t.Call] = t
			}
		}
		for _, l := range r.locks {
			if l.UnlockBegin != 0 && l.Ended != 0 {
				s.report.Operations++
				s.report.Unlocks[l.Unlock]++
				s.failed(l.Unlock, l.UnlockBegin)
				s.long(history.Try{Process: l.Process, Key: l.Key, Begin: l.UnlockBegin, End: l.Ended, Result: l.Unlock}, true)
			}
		}
	}
	for _, t := range results {
		count(t)
	}
}

func (s *sweep) failed(result history.Result, at history.Moment) {
	if result == history.Failed || result == history.Closed {
		s.report.found(ErrFailed, at, "a call ended with %q", result)
	}
}

// long checks how long a call took, beyond its deadline if it waits. A slow network
// may double the time of a call, whose key another call had reserved for its own,
// but not that of an Unlock.
func (s *sweep) long(t history.Try, unlock bool) {
	begin, bound := t.Begin, s.CallTimeout
	if t.Waits {
		begin = t.Until
	}
	if bound == 0 || begin == 0 || time.Duration(t.End-begin) <= bound {
		return
	}
	if !unlock && s.slow.of(t.Process).touch(begin, t.End) {
		bound *= 2
	}
	took := time.Duration(t.End - begin - s.frozen.of(t.Process).covered(begin, t.End))
	if took > bound {
		s.report.found(ErrLong, t.Begin, "%v, more than %v; to unlock: %t; %+v", took, bound, unlock, t)
	}
}
