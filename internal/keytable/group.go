package keytable

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// A Group is a list of keys, of which each request in its line wants one. A
// single key is a group of its own. The table's mu protects it.
//
// The requests of a line share one look at the database at a time. A look tries
// as many keys as requests want. It serves all that came before it was sent: in
// order, as many as keys were free. The others have seen every key held.
//
// Invariant: at most one of wanted, looking and polled is true.
type Group struct {
	keys []*State // distinct
	ids  []ID     // of the call that made it; nil: of a single key
	of   any      // and its Keys.Of

	line  list
	tries int    // requests of the line that only try
	waits int    // and those that wait
	read  int    // of waits: those for readers
	last  uint64 // the last request that only tries
	fresh uint64 // the last poll: what was seen before counts for no waiting request

	heldHere int           // keys that are held by callers of this process
	busy     int           // keys that are not idle
	stacks   int           // stacks that want a key of it
	wide     bool          // a narrow look has not been enough
	looking  bool          // a look is under way
	wanted   bool          // it is in Table.wanted
	polled   bool          // it is in Table.polls
	touched  bool          // it is in Table.touched
	due      time.Duration // no poll before; 0: the next
	why      error         // what the source has denied it with, if not ErrHeld
}

// inUse reports whether the table must keep g.
func (g *Group) inUse() bool {
	return g.line.first != nil || g.looking || g.wanted || g.touched || g.stacks > 0
}

// turned notes that a key of g has changed its phase.
func (g *Group) turned(from, to phase) {
	if from == held {
		g.heldHere--
	}
	if to == held {
		g.heldHere++
	}
	if from != idle {
		g.busy--
	}
	if to != idle {
		g.busy++
	}
}

// inOrder yields the keys of g in the order in which to try them, from a place
// on. Of a large group those that other sessions held come last, so each process
// comes to use keys that others leave alone.
func (g *Group) inOrder(start int) iter.Seq[*State] {
	return func(yield func(*State) bool) {
		few := len(g.keys) <= narrow
		for _, elsewhere := range [...]bool{false, true} {
			for i := range g.keys {
				k := g.keys[(start+i)%len(g.keys)]
				if (k.elsewhere && !few) == elsewhere && !yield(k) {
					return
				}
			}
		}
	}
}

// group returns the group of keys, which is on the table from now on.
func (t *Table) group(keys Keys) *Group {
	first := keys.At(0)
	if keys.N == 1 {
		return &t.state(first).own
	}
	for _, g := range t.groups[first] {
		if g.has(keys) {
			return g
		}
	}
	g := &Group{ids: make([]ID, keys.N), of: keys.Of, keys: make([]*State, 0, keys.N)}
	for i := range g.ids {
		g.ids[i] = keys.At(i)
		k := t.state(g.ids[i])
		if m := len(k.groups); m > 0 && k.groups[m-1] == g { // a key twice
			continue
		}
		k.groups = append(k.groups, g)
		g.keys = append(g.keys, k)
		g.turned(idle, k.phase)
	}
	if len(g.keys) == 1 {
		k := g.keys[0]
		k.groups = k.groups[:len(k.groups)-1]
		return &k.own
	}
	t.groups[first] = append(t.groups[first], g)
	return g
}

// has reports whether g is the group of keys.
func (g *Group) has(keys Keys) bool {
	if keys.N != len(g.ids) {
		return false
	}
	if g.of != nil && g.of == keys.Of {
		return true
	}
	for i, id := range g.ids {
		if keys.At(i) != id {
			return false
		}
	}
	g.of = cmp.Or(keys.Of, g.of)
	return true
}

// drop takes g off the table if nothing needs it, and its keys.
func (t *Table) drop(g *Group) {
	if g.inUse() {
		return
	}
	if g.polled {
		t.unpoll(g)
	}
	if g.ids == nil {
		t.forget(g.keys[0])
		return
	}
	if g.busy > 0 {
		return
	}
	first, isG := g.ids[0], func(other *Group) bool { return other == g }
	if t.groups[first] = slices.DeleteFunc(t.groups[first], isG); len(t.groups[first]) == 0 {
		delete(t.groups, first)
	}
	for _, k := range g.keys {
		k.groups = slices.DeleteFunc(k.groups, isG)
		t.forget(k)
	}
}

// touch has g settled before the table is unlocked.
func (t *Table) touch(g *Group) {
	if !g.touched {
		g.touched = true
		t.touched = append(t.touched, g)
	}
}

// settle settles all groups that were touched.
func (t *Table) settle() {
	for i := 0; i < len(t.touched); i++ { // a group that is dropped touches no other
		g := t.touched[i]
		t.touched[i] = nil
		g.touched = false
		t.settleGroup(g)
	}
	t.touched = t.touched[:0]
}

// settleGroup rejects the requests that have seen each key of g held, and sees
// that a look or a poll comes for the others. Readers in line join those of this
// process if they may by now.
func (t *Table) settleGroup(g *Group) {
	if g.tries > 0 {
		t.rejectSeen(g)
	}
	if g.line.first != nil && g.keys[0].joinable() {
		t.admit(g.keys[0])
	}
	if g.line.first == nil {
		g.wide = false
		if g.wanted { // all have left before a batch came
			g.wanted = false
			t.wanted = slices.DeleteFunc(t.wanted, func(other *Group) bool { return other == g })
		}
		t.drop(g)
		return
	}
	if g.wanted || g.looking || g.polled && g.tries == 0 {
		return
	}
	transit, due := false, Forever
	for _, k := range g.keys {
		switch {
		case t.mayTry(g, k):
			t.want(g)
			return
		case k.phase.inTransit():
			transit = true
		case k.phase == idle:
			due = min(due, k.rests)
		}
	}
	if !transit && g.heldHere < len(g.keys) { // other processes hold the others, or they rest
		t.poll(g, due)
	}
}

// mayTry reports whether a look for g should try k. It should if a request of the
// line may get k, and has not seen it held since it came or was polled for. A
// request that only tries does not overtake those that wait in other lines.
func (t *Table) mayTry(g *Group, k *State) bool {
	if k.phase != idle {
		return false
	}
	seen := k.seenBy(g.mode())
	return g.tries > 0 && seen < g.last && k.waits == g.waits ||
		g.waits > 0 && seen < g.fresh && (k.rests == 0 || k.rests <= t.config.Now())
}

// mode returns the mode in which the next look tries keys.
func (g *Group) mode() Mode {
	if g.line.first == nil {
		return Exclusive
	}
	return g.line.first.request.Mode
}

// rejectSeen rejects each request that only tries and has seen every key of g
// held, here or elsewhere, or waited for.
func (t *Table) rejectSeen(g *Group) {
	upTo := [2]uint64{^uint64(0), ^uint64(0)} // by mode
	if g.heldHere < len(g.keys) || g.ids == nil {
		for _, k := range g.keys {
			for m := range upTo {
				if !k.blocks(Mode(m), g) {
					upTo[m] = min(upTo[m], k.seenBy(Mode(m)))
				}
			}
		}
	}
	most := max(upTo[Exclusive], upTo[Shared])
	for c := g.line.first; c != nil && c.request.number <= most; { // in order, so that a burst of callers does not walk the line each
		r := c.request
		if c = c.next; !r.Waits && r.number <= upTo[r.Mode] {
			t.decide(r, nil, ErrHeld)
		}
	}
}

// blocks reports whether a request of g for this mode finds k held here, or
// waited for by others.
func (k *State) blocks(m Mode, g *Group) bool {
	if k.phase == held && (m == Exclusive || k.mode == Exclusive) {
		return true
	}
	return k.waits > g.waits
}

// ahead returns how many requests that wait for k a request for this mode must
// not overtake. Readers join readers.
func (k *State) ahead(m Mode) int {
	if m == Shared {
		return k.waits - k.own.read
	}
	return k.waits
}

// want has the next batch look for keys of g.
func (t *Table) want(g *Group) {
	if g.polled {
		t.unpoll(g)
	}
	g.wanted = true
	t.wanted = append(t.wanted, g)
	t.queued()
}

// deny decides the requests of g that only try with err.
func (t *Table) deny(g *Group, err error) {
	g.line.each(func(r *Request) {
		if !r.Waits {
			t.decide(r, nil, err)
		}
	})
}

// AwayFor is how long requests that wait are not tried again after the source
// has denied them with an error.
const AwayFor = 250 * time.Millisecond

// poll has g tried again by a Poll, not before due, or by the next if due is 0.
// Other processes hold its keys, or the source has denied them.
func (t *Table) poll(g *Group, due time.Duration) {
	g.polled, g.due = true, due
	t.polls[g] = struct{}{}
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
			t.want(g)
		}
	}
	t.retryStacks()
	return len(t.polls) + len(t.retries)
}

// Polls returns how many keys, groups and stacks a Poll would have tried, now or
// later.
func (t *Table) Polls() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.polls) + len(t.retries)
}
