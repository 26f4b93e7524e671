package check

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A lock is what the history says of one lock, from its grant to its end.
type lock struct {
	history.Hold // its last line; made up of its Try if there is none

	asked   history.Moment // when the call that brought it began; 0: not known
	granted history.Moment // when that call had returned

	tried, noted bool // whether the history has its Try, its Hold
}

// A record is what the history says of one key.
type record struct {
	key   int64
	plain bool          // it has calls of the kind Plain alone
	tries []history.Try // by Begin
	locks []*lock       // by granted
}

// index sorts the history by key. It reports lines that contradict each other,
// and goes on.
func (s *sweep) index(events []history.Event) {
	s.locks = map[int64]*lock{}
	keys := map[int64]*record{}
	of := func(key int64, kind history.Kind) *record {
		r := keys[key]
		if r == nil {
			r = &record{key: key, plain: true}
			keys[key] = r
		}
		r.plain = r.plain && kind == history.Plain
		return r
	}
	holds := map[int64]history.Hold{} // of each lock the last line
	for _, e := range events {
		switch {
		case e.Try != nil:
			r := of(e.Try.Key, e.Try.Kind)
			r.tries = append(r.tries, *e.Try)
			s.granted(*e.Try)
		case e.Hold != nil:
			holds[e.Hold.Lock] = *e.Hold
		case e.Fault != nil:
			s.faults = append(s.faults, *e.Fault)
		case e.Write != nil:
			s.report.Writes[e.Write.Result]++
		}
	}
	for _, h := range holds {
		s.held(h)
	}
	for _, l := range s.locks {
		r := of(l.Key, l.Kind)
		r.locks = append(r.locks, l)
	}
	s.keys = slices.SortedFunc(maps.Values(keys), func(a, b *record) int { return cmp.Compare(a.key, b.key) })
	for _, r := range s.keys {
		slices.SortFunc(r.tries, func(a, b history.Try) int { return cmp.Compare(a.Begin, b.Begin) })
		slices.SortFunc(r.locks, func(a, b *lock) int {
			return cmp.Or(cmp.Compare(a.granted, b.granted), cmp.Compare(a.Lock, b.Lock))
		})
	}
	slices.SortFunc(s.faults, func(a, b history.Fault) int { return cmp.Compare(a.Begin, b.Begin) })
}

// granted makes a lock of a Try that brought one.
func (s *sweep) granted(t history.Try) {
	if t.End < t.Begin {
		s.report.found(ErrMalformed, t.Begin, "a call ends before it begins: %+v", t)
	}
	if t.Result != history.OK {
		return
	}
	if t.Lock == 0 || s.locks[t.Lock] != nil {
		s.report.found(ErrMalformed, t.Begin, "lock %d is granted again, or has no number", t.Lock)
	}
	made := history.Hold{Process: t.Process, Key: t.Key, Lock: t.Lock, Kind: t.Kind, Limited: t.Limited, From: t.End}
	s.locks[t.Lock] = &lock{Hold: made, asked: t.Begin, granted: t.End, tried: true}
}

// held adds the Hold of a lock.
func (s *sweep) held(h history.Hold) {
	l := s.locks[h.Lock]
	if l == nil { // its process was killed before it wrote the Try
		l = &lock{granted: h.From}
		s.locks[h.Lock] = l
	} else if l.Key != h.Key || l.Process != h.Process || l.Kind != h.Kind || l.Limited != h.Limited || h.From < l.granted {
		s.report.found(ErrMalformed, h.From, "the Hold of lock %d does not go with its Try", h.Lock)
	}
	l.Hold, l.noted = h, true
}

// complete reports locks without a beginning or an end.
func (s *sweep) complete() {
	for _, l := range s.locks {
		if s.killed[l.Process] == 0 && (!l.tried || !l.noted || l.Ended == 0) {
			s.report.found(ErrMalformed, l.granted, "lock %d of process %d lacks a Try, a Hold or its end", l.Lock, l.Process)
		}
	}
}

// of returns the faults of rows.
func (s *sweep) of(rows []int) (all []history.Fault) {
	for _, f := range s.faults {
		if slices.Contains(rows, f.Row) {
			all = append(all, f)
		}
	}
	return all
}

// after is how many locks of r were granted by m: the index of the first that
// was granted later.
func (r *record) after(m history.Moment) int {
	return sort.Search(len(r.locks), func(i int) bool { return r.locks[i].granted > m })
}

// seen is when l was last seen to be valid; From if it never was.
func (l *lock) seen() history.Moment { return max(l.From, l.Valid) }

func (l *lock) grant() Grant { return Grant{l.Hold, l.granted} }

// returned reports whether l was given back by its holder, for certain.
func (l *lock) returned() bool { return l.Unlock == history.OK }

// lost reports whether l's holder, or its Unlock, says that it was lost.
func (l *lock) lost() bool { return l.Told != 0 || l.Unlock == history.Lost }

// until returns the moment until which l was certainly held.
func (l *lock) until() history.Moment {
	if l.returned() && l.Told == 0 {
		return max(l.seen(), l.UnlockBegin)
	}
	return l.seen()
}

// ghost reports whether l was lost before any look saw it valid, for instance
// because its process froze before it read the response. It may have been
// granted and lost at any moment of the call.
func (l *lock) ghost() bool { return l.Valid < l.From && !l.returned() }
