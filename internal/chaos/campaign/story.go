package campaign

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A story is what one freeze did to one key: who held it, who got it next, and
// when the one who was frozen was told.
type story struct {
	fault   history.Fault
	lost    history.Hold // by the process that was frozen
	next    history.Hold // of another process
	granted history.Moment
	refused history.Moment // the last time at which the server still held the key for lost; 0: nobody asked
	others  []history.Hold // of the key, about that time
	from    history.Moment // of the picture
	to      history.Moment
}

// errNoStory: no freeze cost anybody a lock that somebody else got meanwhile.
var errNoStory = errors.New("campaign: no freeze for a picture: nobody got the key of a frozen process meanwhile; run row 2 more often")

// margin is how much of a story is told before and after it.
const margin = history.Moment(300 * time.Millisecond)

// find is the freeze that makes the clearest picture.
func find(events []history.Event) (best story, err error) {
	keys := sortByKey(events)
	for _, e := range events {
		if e.Fault == nil || e.Fault.Row != frozenRow.Number {
			continue
		}
		for _, k := range keys {
			s, ok := k.story(*e.Fault)
			if ok && (best.lost.Lock == 0 || s.clarity() > best.clarity()) {
				best = s
			}
		}
	}
	if best.lost.Lock == 0 {
		return story{}, errNoStory
	}
	return best, nil
}

// clarity is better if both holders held for a while, which can be seen, and if the
// moment is known at which the server freed the key.
func (s *story) clarity() history.Moment {
	const seen = history.Moment(200 * time.Millisecond)
	return min(s.next.Valid-s.next.From, seen) + min(s.fault.Begin-s.lost.From, seen) -
		2*(s.granted-max(s.refused, s.fault.Begin))
}

// A keyHistory is what happened to one key.
type keyHistory struct {
	tries []history.Try
	holds map[int64]history.Hold // of each lock the last line
}

func sortByKey(events []history.Event) map[int64]*keyHistory {
	keys := map[int64]*keyHistory{}
	of := func(key int64) *keyHistory {
		if keys[key] == nil {
			keys[key] = &keyHistory{holds: map[int64]history.Hold{}}
		}
		return keys[key]
	}
	for _, e := range events {
		switch {
		case e.Try != nil:
			k := of(e.Try.Key)
			k.tries = append(k.tries, *e.Try)
		case e.Hold != nil:
			of(e.Hold.Key).holds[e.Hold.Lock] = *e.Hold
		}
	}
	return keys
}

// story is what f did to the key, if it cost its victim a lock that another
// process was granted before the victim was told.
func (k *keyHistory) story(f history.Fault) (s story, ok bool) {
	s.fault = f
	for _, h := range k.holds {
		if h.Process == f.Process && h.From <= f.Begin && h.Valid >= h.From && h.Told >= f.End {
			if s.lost.Lock == 0 || h.From > s.lost.From {
				s.lost = h
			}
		}
	}
	if s.lost.Lock == 0 {
		return s, false
	}
	for _, h := range k.holds {
		if h.Process != f.Process && h.From > f.Begin && h.Valid > h.From && (s.next.Lock == 0 || h.From < s.next.From) {
			s.next = h
		}
	}
	if s.next.Lock == 0 || s.next.From >= f.End {
		return s, false
	}
	s.granted = s.next.From
	for _, t := range k.tries {
		if t.Lock == s.next.Lock {
			s.granted = t.End
		}
	}
	s.refused = k.lastRefusal(f, s.granted)
	s.from, s.to = min(s.lost.From, f.Begin-margin), s.lost.Told+margin
	s.from = max(s.from, f.Begin-3*margin)
	for _, h := range k.holds {
		if h.Lock != s.lost.Lock && h.Valid > s.from && h.From < s.to && h.Valid > h.From {
			s.others = append(s.others, h)
		}
	}
	slices.SortFunc(s.others, func(a, b history.Hold) int { return cmp.Compare(a.From, b.From) })
	return s, true
}

// lastRefusal is when the last call began that another process made during f,
// before granted, and that the server refused. One beside another call of its
// process may have been answered from memory.
func (k *keyHistory) lastRefusal(f history.Fault, granted history.Moment) (last history.Moment) {
	var meanwhile []history.Try
	for _, t := range k.tries {
		if t.Process != f.Process && t.End > f.Begin && t.Begin < granted {
			meanwhile = append(meanwhile, t)
		}
	}
	for _, t := range meanwhile {
		if t.Result == history.Held && t.Begin > max(f.Begin, last) && t.End < granted && !beside(t, meanwhile) {
			last = t.Begin
		}
	}
	return last
}

// beside reports whether t overlaps another one of its process among all.
func beside(t history.Try, all []history.Try) bool {
	return slices.ContainsFunc(all, func(o history.Try) bool {
		return o.Process == t.Process && o != t && o.Begin <= t.End && t.Begin <= o.End
	})
}
