package demo

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A work is one line of an instance's log: the leader's work, done between two
// moments of the machine's clock.
type work struct {
	Term     int       `json:"term"`
	Token    string    `json:"token"`
	From, To time.Time // when the leader asked its lock, and when the work was done
}

// A term is the time for which an instance certainly led: from the end of its
// first work to the beginning of its last.
type term struct {
	instance, number int
	token            string
	first, last      time.Time
	works            int
}

// A history is the terms of all instances.
type history struct {
	mu    sync.Mutex // protects terms
	terms []*term
}

// add adds the work of an instance.
func (h *history) add(instance int, w work) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.terms, func(t *term) bool { return t.instance == instance && t.number == w.Term })
	if i < 0 {
		i = len(h.terms)
		h.terms = append(h.terms, &term{instance: instance, number: w.Term, token: w.Token, first: w.To, last: w.From})
	}
	t := h.terms[i]
	if w.To.Before(t.first) {
		t.first = w.To
	}
	if w.From.After(t.last) {
		t.last = w.From
	}
	t.works++
}

// after returns the first term that went on after a moment. It leaves out the
// terms of one instance, and returns nil if there is no other yet.
func (h *history) after(moment time.Time, not int) *term {
	for _, t := range h.inOrder() {
		if t.instance != not && t.last.After(moment) {
			return &t
		}
	}
	return nil
}

// inOrder returns the terms by their beginnings.
func (h *history) inOrder() (all []term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.terms {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b term) int { return a.first.Compare(b.first) })
	return all
}

// overlaps counts the terms that began before an earlier one had ended.
func overlaps(inOrder []term) (n int) {
	var last time.Time
	for i, t := range inOrder {
		if i > 0 && !t.first.After(last) && !t.first.After(t.last) {
			n++
		}
		if t.last.After(last) {
			last = t.last
		}
	}
	return n
}

// tokensGrow reports whether each leader's token is greater than that of the
// leader before.
func tokensGrow(inOrder []term) bool {
	return slices.IsSortedFunc(inOrder, func(a, b term) int { return cmp.Compare(a.token, b.token) })
}
