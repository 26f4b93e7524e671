package check

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What the error of Services matches if an election went wrong. Two leaders at
// once are an overlap of two locks, which Sweep finds.
var (
	ErrTermToken  = errors.New("check: the token of a term is not greater than that of a term before")
	ErrLeadsOn    = errors.New("check: a process called itself leader after it was told of its loss")
	ErrLeaderless = errors.New("check: there was no leader for too long")
)

// A Leaderless time was too long.
type Leaderless struct {
	Key      int64
	From, To history.Moment
	Outside  time.Duration // of any fault
}

// terms checks each key that has a leader:
//
//   - Of two terms of which one ended before the other began, the later has the
//     greater token.
//   - No Status calls a process leader after its loss was told.
//   - There is a leader again within leaderless, in which the time of faults does
//     not count.
func (c *services) terms(rs *records, leaderless time.Duration) {
	leaders := map[int64]map[int]bool{} // processes by key
	faults := disturbances(rs.faults)
	for _, r := range rs.keys {
		var terms []*lock
		for _, l := range r.locks {
			if l.Kind == history.Term {
				terms = append(terms, l)
			}
		}
		if i := slices.IndexFunc(r.tries, func(t history.Try) bool { return t.Kind == history.Term }); i >= 0 {
			c.gaps(r, terms, r.tries[i].Begin, faults, leaderless)
		}
		if len(terms) == 0 {
			continue
		}
		leaders[r.key] = map[int]bool{}
		slices.SortFunc(terms, func(a, b *lock) int { return cmp.Compare(a.From, b.From) })
		for i, t := range terms {
			c.count(&c.Terms, t.From, t.seen())
			leaders[r.key][t.Process] = true
			if t.Leads != 0 {
				c.Leading++
			}
			if t.Told != 0 && t.Leads > t.Told {
				c.found.add(ErrLeadsOn, t.Hold)
			}
			c.token(terms[:i], t)
		}
	}
	for _, by := range leaders {
		c.Leaders = max(c.Leaders, len(by))
	}
}

// token compares t with the terms before it. Those that overlap t, in the time
// until the news of a loss, have no order.
func (c *services) token(before []*lock, t *lock) {
	for i := len(before) - 1; i >= 0 && t.Token != ""; i-- {
		b := before[i]
		if b.Token == "" || b.seen() >= t.From {
			continue
		}
		c.Ranked++
		if b.Token >= t.Token {
			c.found.add(ErrTermToken, t.Hold)
		}
		return
	}
}

// gaps looks for times without a leader, from the first call that wanted to be
// one, which began at first, up to the last.
func (c *services) gaps(r *record, terms []*lock, first history.Moment, faults *spans, leaderless time.Duration) {
	if leaderless == 0 {
		return
	}
	until := first
	gap := func(to history.Moment) {
		outside := to - until - faults.covered(min(until, to), to)
		if time.Duration(outside) > leaderless {
			c.found.add(ErrLeaderless, Leaderless{r.key, until, to, time.Duration(outside)})
		}
	}
	for _, t := range terms {
		gap(t.granted)
		until = max(until, t.until())
	}
	var wanted history.Moment
	for _, t := range r.tries {
		wanted = max(wanted, t.End)
	}
	gap(wanted)
}
