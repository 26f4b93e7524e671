package election_test

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// A claim is a look at whether somebody leads that said yes: it was so at some
// moment between From and To, in nanoseconds of the machine's clock.
type claim struct {
	Who, Term int
	Token     string
	From, To  int64
}

// A book keeps the claims of all candidates.
type book struct {
	mu     sync.Mutex // protects reigns
	reigns map[reign]*span
}

// A reign is a term of one process.
type reign struct{ who, term int }

// A span is the time for which a reign is certain: from the end of the first
// look to the beginning of the last. What was lost never came back, so it led
// all the time between.
type span struct {
	token       string
	first, last int64
}

func (b *book) add(c claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reigns == nil {
		b.reigns = make(map[reign]*span)
	}
	r := reign{c.Who, c.Term}
	s := b.reigns[r]
	if s == nil {
		s = &span{token: c.Token, first: c.To, last: c.From}
		b.reigns[r] = s
	}
	s.first, s.last = min(s.first, c.To), max(s.last, c.From)
}

// since is who led for certain after a moment, not counting one process; ok
// reports whether there is any, and at is when that became certain.
func (b *book) since(moment time.Time, not int) (who int, at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, s := range b.reigns {
		if r.who != not && s.first <= s.last && s.last > moment.UnixNano() && (!ok || s.first < at.UnixNano()) {
			who, at, ok = r.who, time.Unix(0, s.first), true
		}
	}
	return who, at, ok
}

// token is that of the last reign of a process.
func (b *book) token(who int) (token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, s := range b.reigns {
		if r.who == who {
			token = max(token, s.token)
		}
	}
	return token
}

// check fails the test if two led at once, or a later leader's token was not
// the greater.
func (b *book) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	type entry struct {
		reign
		*span
	}
	var entries []entry
	for r, s := range b.reigns {
		if s.first <= s.last {
			entries = append(entries, entry{r, s})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return int(a.first - b.first) })
	for i := 1; i < len(entries); i++ {
		a, b := entries[i-1], entries[i]
		if b.first <= a.last {
			t.Errorf("two led at once, for %v: %v and %v", time.Duration(min(a.last, b.last)-b.first), a.reign, b.reign)
		}
		if b.token <= a.token {
			t.Errorf("token %q after %q", b.token, a.token)
		}
	}
	if len(entries) < 2 {
		t.Errorf("only %d reigns", len(entries))
	}
	t.Logf("%d reigns", len(entries))
}
