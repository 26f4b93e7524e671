package campaign

import (
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// believed is the history as the server saw it: without what victims believed in
// those windows, where that contradicts it. A lock from before is in doubt from
// then on. One that was handed on within the process is not there at all, nor is
// what the process answered from memory while it believed.
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

// contradicts reports whether c, a victim's lock, was held beside another one, and
// only beside such as are an excuse for it.
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

// heldUntil is the moment to which c was held, by what its holder saw.
func heldUntil(c *check.Grant) history.Moment {
	until := max(c.From, c.Valid)
	if c.Unlock == history.OK && c.Told == 0 {
		until = max(until, c.UnlockBegin)
	}
	return until
}

// remembered reports whether t was refused beside one of locks, until its end.
func remembered(t history.Try, locks []*check.Grant) bool {
	for _, c := range locks {
		if t.End >= c.Granted && t.Begin <= max(heldUntil(c), c.Told, c.Ended) {
			return true
		}
	}
	return false
}

// doubted is h, if nobody knows what became of it after from.
func doubted(h history.Hold, from history.Moment) *history.Hold {
	h.Valid = max(h.From, min(h.Valid, from))
	if h.Unlock == history.OK {
		h.Unlock = history.Unavailable
	}
	return &h
}
