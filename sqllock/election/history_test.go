package election_test

import (
	"cmp"
	"slices"
	"sync"
	"testing"
	"time"
)

// An observation is a look at a Status that said Leader. It was so at some
// moment between From and To, in nanoseconds of the machine's clock.
type observation struct {
	Who, Term int
	Token     string
	From, To  int64
}

// A history keeps the observations of all candidates.
type history struct {
	mu    sync.Mutex // protects terms
	terms map[termID]*span
}

// A termID names a term of one process.
type termID struct{ who, term int }

// A span is the time for which a process led for certain, in one term: from the
// end of the first look to the beginning of the last. A lost key does not come
// back within a term, so the process led all the time between.
type span struct {
	token       string
	first, last int64
}

func (h *history) add(o observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.terms == nil {
		h.terms = make(map[termID]*span)
	}
	id := termID{o.Who, o.Term}
	s := h.terms[id]
	if s == nil {
		s = &span{token: o.Token, first: o.To, last: o.From}
		h.terms[id] = s
	}
	s.first, s.last = min(s.first, o.To), max(s.last, o.From)
}

// since returns the process that led for certain after a moment, and when that
// became certain. It ignores the process not. ok is false if there is none.
func (h *history) since(moment time.Time, not int) (who int, at time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range h.terms {
		if id.who != not && s.first <= s.last && s.last > moment.UnixNano() && (!ok || s.first < at.UnixNano()) {
			who, at, ok = id.who, time.Unix(0, s.first), true
		}
	}
	return who, at, ok
}

// token returns the token of the last term of a process.
func (h *history) token(who int) (token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, s := range h.terms {
		if id.who == who {
			token = max(token, s.token)
		}
	}
	return token
}

// check fails the test if two processes led at once, or if a later leader's
// token was not the greater.
func (h *history) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	type entry struct {
		termID
		*span
	}
	var entries []entry
	for id, s := range h.terms {
		if s.first <= s.last {
			entries = append(entries, entry{id, s})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.first, b.first) })
	for i := 1; i < len(entries); i++ {
		a, b := entries[i-1], entries[i]
		if b.first <= a.last {
			t.Errorf("two led at once, for %v: %v and %v", time.Duration(min(a.last, b.last)-b.first), a.termID, b.termID)
		}
		if b.token <= a.token {
			t.Errorf("token %q after %q", b.token, a.token)
		}
	}
	if len(entries) < 2 {
		t.Errorf("only %d terms", len(entries))
	}
	t.Logf("%d terms", len(entries))
}
