package check

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// ErrMalformed is matched by the error for a history that contradicts its own
// format.
var ErrMalformed = errors.New("check: malformed history")

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

// records are the keys of a history, in order.
type records struct {
	keys   []*record
	faults []history.Fault // by Begin
	lines  map[int64]int   // of each Call
	last   history.Moment  // no later one is in the history
}

// index sorts a history by key. It goes on after an error and returns the first
// one.
func index(events []history.Event) (*records, error) {
	x := indexer{locks: map[int64]*lock{}, keys: map[int64]*record{}}
	holds := map[int64]history.Hold{} // of each lock the last line
	rs := &records{lines: map[int64]int{}}
	for _, e := range events {
		switch {
		case e.Try != nil:
			x.try(*e.Try)
			rs.lines[e.Try.Call]++
		case e.Hold != nil:
			holds[e.Hold.Lock] = *e.Hold
		case e.Fault != nil:
			rs.faults = append(rs.faults, *e.Fault)
		}
	}
	for _, h := range holds {
		x.hold(h)
	}
	for _, l := range x.locks {
		r := x.key(l.Key)
		r.plain = r.plain && l.Kind == history.Plain
		r.locks = append(r.locks, l)
	}
	rs.keys = slices.SortedFunc(maps.Values(x.keys), func(a, b *record) int { return cmp.Compare(a.key, b.key) })
	for _, r := range rs.keys {
		r.sort()
		rs.last = max(rs.last, r.last())
	}
	slices.SortFunc(rs.faults, func(a, b history.Fault) int { return cmp.Compare(a.Begin, b.Begin) })
	return rs, x.malformed
}

// An indexer puts lines where they belong.
type indexer struct {
	locks     map[int64]*lock
	keys      map[int64]*record
	malformed error // the first
}

func (x *indexer) key(key int64) *record {
	if x.keys[key] == nil {
		x.keys[key] = &record{key: key, plain: true}
	}
	return x.keys[key]
}

func (x *indexer) try(t history.Try) {
	r := x.key(t.Key)
	r.tries = append(r.tries, t)
	r.plain = r.plain && t.Kind == history.Plain
	if t.End < t.Begin {
		x.complain("a Try of process %d ends before it begins", t.Process)
	}
	if t.Result != history.OK {
		return
	}
	if t.Lock == 0 || x.locks[t.Lock] != nil {
		x.complain("lock %d is granted again, or has no number", t.Lock)
	}
	made := history.Hold{Process: t.Process, Key: t.Key, Lock: t.Lock, Kind: t.Kind, Limited: t.Limited, From: t.End}
	x.locks[t.Lock] = &lock{Hold: made, asked: t.Begin, granted: t.End, tried: true}
}

func (x *indexer) hold(h history.Hold) {
	l := x.locks[h.Lock]
	if l == nil { // its process was killed before it wrote the Try
		l = &lock{granted: h.From}
		x.locks[h.Lock] = l
	} else if l.Key != h.Key || l.Process != h.Process || l.Kind != h.Kind || l.Limited != h.Limited || h.From < l.granted {
		x.complain("the Hold of lock %d does not go with its Try", h.Lock)
	}
	l.Hold, l.noted = h, true
}

func (x *indexer) complain(format string, args ...any) {
	if x.malformed == nil {
		x.malformed = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

func (r *record) sort() {
	slices.SortFunc(r.tries, func(a, b history.Try) int { return cmp.Compare(a.Begin, b.Begin) })
	slices.SortFunc(r.locks, func(a, b *lock) int {
		return cmp.Or(cmp.Compare(a.granted, b.granted), cmp.Compare(a.Lock, b.Lock))
	})
}

// last is the latest moment that r knows of.
func (r *record) last() (m history.Moment) {
	for _, t := range r.tries {
		m = max(m, t.End)
	}
	for _, l := range r.locks {
		m = max(m, l.From, l.Valid, l.Told, l.UnlockBegin, l.Ended)
	}
	return m
}

// after is how many locks of r were granted by m: the index of the first that
// was granted later.
func (r *record) after(m history.Moment) int {
	return sort.Search(len(r.locks), func(i int) bool { return r.locks[i].granted > m })
}

// seen is when l was last seen to be valid; From if it never was.
func (l *lock) seen() history.Moment { return max(l.From, l.Valid) }

func (l *lock) grant() Grant { return Grant{l.Hold, cmp.Or(l.asked, l.granted), l.granted} }

// returned reports whether l was given back by its holder, for certain.
func (l *lock) returned() bool { return l.Unlock == history.OK }

// until returns the moment until which l was certainly held. What ended it
// began then, unless the history is wrong.
func (l *lock) until() history.Moment {
	switch {
	case l.returned() && l.Told == 0:
		return max(l.seen(), l.UnlockBegin)
	case l.ghost():
		return l.asked
	}
	return l.seen()
}

// ghost reports whether l was lost before any look saw it valid, for instance
// because its process froze before it read the response. It may have been
// granted and lost at any moment of the call.
func (l *lock) ghost() bool { return l.Valid < l.From && !l.returned() }
