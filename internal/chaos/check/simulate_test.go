package check

import (
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

const (
	ms   = history.Moment(time.Millisecond)
	kill = 1 // row of the fault table
)

// A simulation is a lock service and its callers. It knows when each key is
// really held, and writes calls around these moments.
type simulation struct {
	rng    *rand.Rand
	events []history.Event
	locks  int64
}

// simulate is the history of a correct service, with about so many calls. Locks
// are lost, processes are killed, answers do not come.
func simulate(seed uint64, calls int) []history.Event {
	const keys = 6
	s := &simulation{rng: rand.New(rand.NewPCG(seed, 0))}
	for key := range int64(keys) {
		for now := ms; len(s.events) < 2*calls*int(key+1)/keys; now = s.held(key, now+s.upTo(300)) {
			if s.rng.IntN(20) == 0 { // a call without a known effect has the key for a while
				end := now + s.upTo(700)
				s.refusals(key, now, end)
				s.try(history.Try{Key: key, Begin: now - s.upTo(50), End: now + s.upTo(50), Result: history.Unavailable})
				now = end
			}
		}
	}
	return s.events
}

func (s *simulation) upTo(milliseconds int) history.Moment {
	return 1 + history.Moment(s.rng.Int64N(int64(milliseconds)*int64(ms)))
}

func (s *simulation) try(t history.Try) {
	if t.Process == 0 {
		t.Process = 1 + s.rng.IntN(4)
	}
	t.Begin = max(1, t.Begin)
	s.events = append(s.events, history.Event{Try: &t})
}

// refusals makes calls that are refused while the key is held from one moment to
// the other.
func (s *simulation) refusals(key int64, from, to history.Moment) {
	for range s.rng.IntN(5) {
		at := from + history.Moment(s.rng.Int64N(int64(to-from)))
		s.try(history.Try{Key: key, Begin: at - s.upTo(50), End: at + s.upTo(50), Result: history.Held, Process: 5 + s.rng.IntN(3)})
	}
}

// held has key held from now on, and returns until when.
func (s *simulation) held(key int64, now history.Moment) (end history.Moment) {
	s.locks++
	h := history.Hold{Process: 1 + s.rng.IntN(4), Key: key, Lock: s.locks, From: now + s.upTo(100)}
	killed := s.rng.IntN(40) == 0
	if killed {
		h.Process = 100 + int(s.locks) // no later process has its number
	}
	s.try(history.Try{Process: h.Process, Key: key, Begin: now - s.upTo(100), End: h.From, Result: history.OK, Lock: h.Lock})
	h.Valid = h.From + s.upTo(300)
	h.UnlockBegin = h.Valid + s.upTo(50)
	end = h.UnlockBegin + s.upTo(50)
	h.Ended = end + s.upTo(50)
	switch n := s.rng.IntN(100); {
	case killed:
		end = h.Valid + s.upTo(2000)
		s.events = append(s.events, history.Event{Fault: &history.Fault{Row: kill, Process: h.Process, Begin: h.UnlockBegin, End: h.UnlockBegin + ms}})
		h.UnlockBegin, h.Ended = 0, 0
	case n < 5: // it is told, and the server frees the key later
		h.Told, h.Ended, h.Unlock = h.UnlockBegin, h.UnlockBegin, history.Lost
		end = h.Told + s.upTo(2000)
	case n < 8:
		h.Unlock = history.Unavailable
		end = h.Ended + s.upTo(2000)
	default:
		h.Unlock = history.OK
	}
	s.events = append(s.events, history.Event{Hold: &h})
	s.refusals(key, now, end)
	return end
}
