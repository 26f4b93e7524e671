package lockwatch

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A party can wait, and others can wait for it. It is a server process, or a caller
// in a program, which is known by the lock that it holds. Callers of a Session that
// hold no lock that is known are one party.
//
// Invariant: a lock has a party of its own if hasParty says so. Any other lock
// belongs to the party of its process.
type party struct {
	pid     int
	session int64 // of callers that hold no lock that is known; else 0
	held    bool
	key     sqllock.Key // only if held
}

func compareParties(a, b party) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.session, b.session), compareBools(a.held, b.held), compareKeys(a.key, b.key))
}

func compareBools(a, b bool) int {
	if a == b {
		return 0
	}
	if b {
		return -1
	}
	return 1
}

// party returns a party that tells the waiters of one key apart.
func (w *Waiter) party() party {
	p := party{pid: w.Process.PID}
	if w.Poll != nil {
		if p.session = w.Poll.Session; w.Poll.Held != nil {
			p.held, p.key = true, *w.Poll.Held
		}
	}
	return p
}

// A node is a party, with what it waits for.
type node struct {
	party
	client Client
	of     int64  // the number of the Session that has the lock; 0: of none
	waits  []edge // for all of them; in a cycle the first leads on in it

	alive   bool // may be in a cycle
	certain bool // is in a certain one
	cycle   int  // the first of its cycles, from 1
	guessed bool // that cycle is not certain
}

// An edge is a wait for another node.
type edge struct {
	to   *node
	wait *Waiter // nil: not for an advisory lock
}

// inServer reports whether the wait is in the server, which sees it.
func (e edge) inServer() bool { return e.wait == nil || e.wait.Poll == nil }

// A step is a wait on a path.
type step struct {
	from *node
	edge
}

// A waitGraph is the certain waits of a Snapshot. Leases are not in it: nothing
// shows who waits for one, and an advisory lock on the same key is another lock.
//
// A waiter waits for the holders of its key. Those ahead of it in the queue count
// only where it waits for no holder, as a reader behind a writer. Otherwise they wait
// for the same holders, and a queue of n waiters would have n²/2 edges.
//
// Invariant: nodes are in the order of compareParties.
type waitGraph struct {
	view    *View
	named   map[sqllock.Key]bool // keys that a Poll names as Held
	byParty map[party]*node
	nodes   []*node
}

func newWaitGraph(v *View) *waitGraph {
	g := &waitGraph{view: v, named: make(map[sqllock.Key]bool), byParty: make(map[party]*node)}
	for _, w := range v.waiters {
		if w.Poll != nil && w.Poll.Held != nil {
			g.named[*w.Poll.Held] = true
		}
	}
	for _, holders := range v.holders {
		for _, h := range holders {
			n := g.node(g.partyOf(h), h.client())
			if h.Registration != nil {
				n.of = h.Registration.Session
			}
		}
	}
	for _, w := range v.waiters {
		from := g.waiterNode(w)
		holders, pids := v.blockers(w)
		for _, h := range holders {
			from.waits = append(from.waits, edge{g.byParty[g.partyOf(h)], w})
		}
		for _, pid := range pids {
			from.waits = append(from.waits, edge{g.process(pid), w})
		}
	}
	for _, b := range v.blocked {
		from := g.process(b.Process.PID)
		for _, pid := range b.BlockedBy {
			from.waits = append(from.waits, edge{to: g.process(pid)})
		}
	}
	for _, n := range g.byParty {
		g.nodes = append(g.nodes, n)
		if p := g.byParty[party{pid: n.pid}]; n.held && p != nil && len(p.waits) > 0 {
			n.waits = append(n.waits, edge{to: p}) // its Session cannot release the lock meanwhile
		}
	}
	slices.SortFunc(g.nodes, func(a, b *node) int { return compareParties(a.party, b.party) })
	for _, n := range g.nodes {
		slices.SortStableFunc(n.waits, func(a, b edge) int { return compareParties(a.to.party, b.to.party) })
	}
	return g
}

// node returns the node of p, with a new one for c if there is none.
func (g *waitGraph) node(p party, c Client) *node {
	if g.byParty[p] == nil {
		g.byParty[p] = &node{party: p, client: c}
	}
	return g.byParty[p]
}

func (g *waitGraph) process(pid int) *node {
	return g.node(party{pid: pid}, g.view.clients([]int{pid})[0])
}

func (g *waitGraph) waiterNode(w *Waiter) *node { return g.node(g.waiting(w), w.client()) }

// partyOf returns the party of h.
func (g *waitGraph) partyOf(h *Holder) party {
	if !g.hasParty(h) {
		return party{pid: h.Process.PID}
	}
	return party{pid: h.Process.PID, held: true, key: h.Key}
}

// hasParty reports whether h has a party of its own. Without a registration, that is
// a lock of a ConnLocker or TxLocker. One on a Session's connection is too young to
// be registered, so no Poll is about it.
func (g *waitGraph) hasParty(h *Holder) bool {
	return h.Registration != nil || !h.Shared && g.named[h.Key] && !h.Process.ofSession()
}

// waiting returns the party that waits in w. Callers of a Session held a lock at
// their last heartbeat. That may be on another Session of their process, or on a
// connection or transaction of their own, but only an exclusive lock is certainly
// theirs then. It is not theirs if another caller has acquired the key since.
func (g *waitGraph) waiting(w *Waiter) party {
	p := w.Poll
	if p == nil {
		return party{pid: w.Process.PID}
	}
	if p.Held == nil {
		return party{session: p.Session}
	}
	holders := g.view.holders[idOf(*p.Held)]
	for _, theirs := range []func(h *Holder) bool{
		func(h *Holder) bool { return h.Registration != nil && h.Registration.Session == p.Session },
		func(h *Holder) bool { return h.Registration != nil && !h.Shared },
		func(h *Holder) bool { return h.Registration == nil && g.hasParty(h) },
	} {
		for _, h := range holders {
			if theirs(h) && (h.Registration == nil || !h.Registration.Acquired.After(p.Heartbeat)) {
				return g.partyOf(h)
			}
		}
	}
	return party{session: p.Session}
}

// prune keeps the nodes alive that may be in a cycle: each waits for one that is
// alive, and one that is alive waits for it. A Snapshot mostly has many waits and no
// cycle, so this ends most searches.
func (g *waitGraph) prune() {
	for _, n := range g.nodes {
		n.alive = true
	}
	for changed := true; changed; {
		changed = false
		waited := make(map[*node]bool)
		for _, n := range g.nodes {
			waits := false
			for _, e := range n.waits {
				if n.alive && e.to.alive {
					waits, waited[e.to] = true, true
				}
			}
			changed = changed || n.alive && !waits
			n.alive = waits
		}
		for _, n := range g.nodes {
			changed = changed || n.alive && !waited[n]
			n.alive = n.alive && waited[n]
		}
	}
}

// shortest returns a shortest path from start, of at least one step, to a node for
// which is holds, through nodes for which through holds. It is nil if there is none.
func (g *waitGraph) shortest(start *node, through, is func(*node) bool) (path []step) {
	var arrivals []step
	before := make(map[*node]int) // the arrival where the step to a node begins; -1: at the start
	for at, from := -1, start; ; from = arrivals[at].to {
		for _, e := range from.waits {
			if _, reached := before[e.to]; reached || !through(e.to) {
				continue
			}
			before[e.to] = at
			arrivals = append(arrivals, step{from, e})
			if !is(e.to) {
				continue
			}
			for i := len(arrivals) - 1; i >= 0; i = before[arrivals[i].to] {
				path = append(path, arrivals[i])
			}
			slices.Reverse(path)
			return path
		}
		if at++; at == len(arrivals) {
			return nil
		}
	}
}

// A Node waits, or others wait for it. It is a part of a drawing.
type Node struct {
	Client
	Label    string // of the lock that the caller holds; empty: a server process, or callers that hold no lock that is known
	Wants    string // what it waits for, in words; empty: nothing
	Cycle    int    // the number of its cycle in [View.Cycles], from 1; 0: none
	Possible bool   // that cycle is not certain
	Arrows   []int  // the nodes that it waits for, at most four; in a cycle the first is the next one there
}

// Graph returns the waits of v for a drawing with at most so many nodes, and the
// number of waits that have no room. Cycles come first.
func (v *View) Graph(most int) (drawn []Node, more int) {
	const maxArrows = 4
	places := make(map[*node]int)
	var nodes []*node
	place := func(n *node) (known bool) {
		if _, known = places[n]; !known && len(nodes) < most {
			places[n], known = len(nodes), true
			nodes = append(nodes, n)
		}
		return known
	}
	var waiting []*node
	for _, w := range v.waiters {
		waiting = append(waiting, v.graph.waiterNode(w))
	}
	for _, b := range v.blocked {
		waiting = append(waiting, v.graph.process(b.Process.PID))
	}
	for _, n := range v.graph.nodes {
		if n.cycle > 0 {
			place(n)
		}
	}
	for _, n := range waiting {
		if !place(n) {
			more++
			continue
		}
		for _, e := range n.waits[:min(len(n.waits), maxArrows)] {
			place(e.to)
		}
	}
	for _, n := range nodes {
		d := Node{Client: n.client, Cycle: n.cycle, Possible: n.guessed}
		if n.held {
			d.Label = v.label(n.key).text
		}
		for i, e := range n.waits {
			if i == 0 {
				d.Wants = v.wants(n, e)
			}
			if to, known := places[e.to]; known && len(d.Arrows) < maxArrows {
				d.Arrows = append(d.Arrows, to)
			}
		}
		drawn = append(drawn, d)
	}
	return drawn, more
}

func (v *View) wants(n *node, e edge) string {
	switch {
	case e.wait != nil:
		return "waits for " + v.label(e.wait.Key).text
	case n.held:
		return "waits for its process"
	}
	return "waits for a row or a table"
}
