package keytable

import "time"

// awayFor is how long requests that wait are not tried again after the source
// has denied them with an error.
const awayFor = 250 * time.Millisecond

// poll has g tried again by a Poll, not before due, or by the next if due is 0.
// Other processes hold its keys, or the source has denied them.
func (t *Table) poll(g *Group, due time.Duration) {
	if g.due == 0 || due > g.due {
		g.due = due
	}
	if !g.polled {
		g.polled = true
		t.polls[g] = struct{}{}
	}
}

func (t *Table) unpoll(g *Group) {
	g.polled, g.due = false, 0
	delete(t.polls, g)
}

// Poll has the next batch try the keys again for which requests wait and that
// other processes hold. It returns how many are left for a later Poll.
func (t *Table) Poll() (left int) {
	t.mu.Lock()
	defer t.unlock()
	now := t.config.Now()
	t.calls++
	for g := range t.polls {
		if g.due == 0 || g.due <= now {
			g.fresh = t.calls
			may := false // not all of its keys rest
			for _, k := range g.keys {
				if k.rest <= now {
					k.rest = 0
				}
				may = may || k.rest == 0
			}
			if may {
				t.want(g)
			}
		}
	}
	return len(t.polls)
}

// Polls returns how many keys and groups a Poll would have tried, now or later.
func (t *Table) Polls() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.polls)
}
