package campaign

import (
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// serverView returns the history as the server saw it. It leaves out what
// victims took for true in their windows, where that contradicts the server:
//
//   - A lock from before the window is in doubt from its beginning on.
//   - A lock that was handed on within the process meanwhile is left out.
//   - So is a refusal that the process gave from memory meanwhile.
func (x *explanation) serverView(events []history.Event) []history.Event {
	stale := map[int64]*window{} // by lock
	memory := map[place][]*check.Grant{}
	for number, w := range x.victims {
		if c := x.claims[number]; x.contradicts(c) {
			stale[number] = w
			at := place{c.Process, c.Key}
			memory[at] = append(memory[at], c)
		}
	}
	var all []history.Event
	for _, e := range events {
		switch {
		case e.Hold != nil && stale[e.Hold.Lock] != nil:
			w := stale[e.Hold.Lock]
			if e.Hold.From > w.Begin {
				continue
			}
			e.Hold = doubted(*e.Hold, w.Begin)
		case e.Try != nil && e.Try.Result == history.OK && stale[e.Try.Lock] != nil:
			if e.Try.End > stale[e.Try.Lock].Begin {
				continue
			}
		case e.Try != nil && e.Try.Result == history.Held && remembered(*e.Try, memory[place{e.Try.Process, e.Try.Key}]):
			continue
		}
		all = append(all, e)
	}
	return all
}

// A place is a key in a process' memory.
type place struct {
	process int
	key     int64
}

// contradicts reports whether c, a lock of a victim, was held at the same time
// as others, all of which may excuse it.
func (x *explanation) contradicts(c *check.Grant) (met bool) {
	for _, o := range x.keys[c.Key] {
		if o == c || o.Granted >= heldUntil(c) || c.Granted >= heldUntil(o) {
			continue
		}
		if !x.excuse(*c, *o) {
			return false
		}
		met = true
	}
	return met
}

// heldUntil returns the moment until which c was held, by what its holder saw.
func heldUntil(c *check.Grant) history.Moment {
	until := max(c.From, c.Valid)
	if c.Unlock == history.OK && c.Told == 0 {
		until = max(until, c.UnlockBegin)
	}
	return until
}

// remembered reports whether t was refused while one of locks was held in the
// memory of its process.
func remembered(t history.Try, locks []*check.Grant) bool {
	for _, c := range locks {
		if t.End >= c.Granted && t.Begin <= max(heldUntil(c), c.Told, c.Ended) {
			return true
		}
	}
	return false
}

// doubted returns h as a lock whose end after from is not known.
func doubted(h history.Hold, from history.Moment) *history.Hold {
	h.Valid = max(h.From, min(h.Valid, from))
	if h.Unlock == history.OK {
		h.Unlock = history.Unavailable
	}
	return &h
}
