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

// An edge is a wait for another node. A node with several edges waits for all of
// their ends.
type edge struct {
	to   int     // index of a node
	wait *Waiter // nil: not for an advisory lock
}

// inServer reports whether the wait is in the server, which sees it.
func (e edge) inServer() bool { return e.wait == nil || e.wait.Poll == nil }

// A step is a wait on a path.
type step struct {
	from int
	edge
}

// A waitGraph is the certain waits of a Snapshot. Leases are not in it: nothing
// shows who waits for one, and an advisory lock on the same key is another lock.
//
// Invariant: nodes are in the order of compareParties and do not change. The other
// fields name them by their index, since a queue of n waiters has n²/2 edges.
type waitGraph struct {
	view     *View
	named    map[sqllock.Key]bool // keys that a Poll names as Held
	nodes    []party
	index    map[party]int
	edges    [][]edge // by node
	sessions []int64  // by node of a lock: the number of its Session; 0 if it is of none
	clients  []Client // by node
}

func newWaitGraph(v *View) *waitGraph {
	g := &waitGraph{view: v, named: make(map[sqllock.Key]bool), index: make(map[party]int)}
	for _, w := range v.waiters {
		if w.Poll != nil && w.Poll.Held != nil {
			g.named[*w.Poll.Held] = true
		}
	}
	g.number()
	for _, w := range v.waiters {
		from := g.index[g.waiting(w)]
		if w.Poll != nil {
			for _, h := range v.holders[idOf(w.Key)] {
				g.add(from, edge{g.index[g.partyOf(h)], w})
			}
			continue
		}
		for _, pid := range w.BlockedBy {
			to, held := g.index[party{pid: pid, held: true, key: w.Key}]
			if !held {
				to = g.index[party{pid: pid}]
			}
			g.add(from, edge{to, w})
		}
	}
	for _, b := range v.blocked {
		for _, pid := range b.BlockedBy {
			g.add(g.index[party{pid: b.Process.PID}], edge{to: g.index[party{pid: pid}]})
		}
	}
	for n, p := range g.nodes { // a Session whose server process waits cannot release its locks meanwhile
		if process := g.index[party{pid: p.pid}]; p.held && len(g.edges[process]) > 0 {
			g.add(n, edge{to: process})
		}
	}
	for _, edges := range g.edges {
		slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.to, b.to) })
	}
	return g
}

func (g *waitGraph) add(from int, e edge) { g.edges[from] = append(g.edges[from], e) }

// number gives the nodes their indices.
func (g *waitGraph) number() {
	clients, sessions := make(map[party]Client), make(map[party]int64)
	process := func(pid int) {
		clients[party{pid: pid}] = g.view.clients([]int{pid})[0]
	}
	for _, holders := range g.view.holders {
		for _, h := range holders {
			p := g.partyOf(h)
			process(h.Process.PID)
			clients[p] = h.client()
			if h.Registration != nil {
				sessions[p] = h.Registration.Session
			}
		}
	}
	for _, w := range g.view.waiters {
		if _, known := clients[g.waiting(w)]; !known {
			clients[g.waiting(w)] = w.client()
		}
		for _, pid := range w.BlockedBy {
			process(pid)
		}
	}
	for _, b := range g.view.blocked {
		process(b.Process.PID)
		for _, pid := range b.BlockedBy {
			process(pid)
		}
	}
	for p := range clients {
		g.nodes = append(g.nodes, p)
	}
	slices.SortFunc(g.nodes, compareParties)
	g.edges = make([][]edge, len(g.nodes))
	for i, p := range g.nodes {
		g.index[p] = i
		g.clients, g.sessions = append(g.clients, clients[p]), append(g.sessions, sessions[p])
	}
}

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

// mayBeInCycle returns which nodes are left when those that wait for no other node,
// and those that no other waits for, are removed again and again. A Snapshot mostly
// has many waits and no cycle, so this ends most searches in linear time.
func (g *waitGraph) mayBeInCycle() []bool {
	there, back := make([][]int, len(g.nodes)), make([][]int, len(g.nodes))
	left := make([]bool, len(g.nodes))
	for from, edges := range g.edges {
		left[from] = true
		for _, e := range edges {
			there[from], back[e.to] = append(there[from], e.to), append(back[e.to], from)
		}
	}
	peel(left, there, back)
	peel(left, back, there)
	return left
}

// peel removes from left the nodes from which no edge leads to another one that is
// left. in has the edges of out, the other way round.
func peel(left []bool, out, in [][]int) {
	degree, ends := make([]int, len(left)), []int(nil)
	for n := range left {
		for _, to := range out[n] {
			if left[n] && left[to] {
				degree[n]++
			}
		}
		if left[n] && degree[n] == 0 {
			ends = append(ends, n)
		}
	}
	for len(ends) > 0 {
		n := ends[0]
		ends, left[n] = ends[1:], false
		for _, from := range in[n] {
			if degree[from]--; left[from] && degree[from] == 0 {
				ends = append(ends, from)
			}
		}
	}
}

// shortest returns a shortest path from start, of at least one step, to a node for
// which is holds. It leads through nodes in within; nil stands for all. The path is
// nil if there is none.
func (g *waitGraph) shortest(start int, within []bool, is func(to int) bool) (path []step) {
	type arrival struct {
		step
		before int // the arrival where step begins; -1: at the start
	}
	var arrivals []arrival
	reached := make(map[int]bool)
	for at, from := -1, start; ; from = arrivals[at].to {
		for _, e := range g.edges[from] {
			if reached[e.to] || within != nil && !within[e.to] {
				continue
			}
			reached[e.to] = true
			arrivals = append(arrivals, arrival{step{from, e}, at})
			if is(e.to) {
				for i := len(arrivals) - 1; i >= 0; i = arrivals[i].before {
					path = append(path, arrivals[i].step)
				}
				slices.Reverse(path)
				return path
			}
		}
		if at++; at == len(arrivals) {
			return nil
		}
	}
}

// A Graph is the waits of a [View] for a drawing: nodes, and arrows from a node that
// waits to those that it waits for.
type Graph struct {
	Nodes []Node
	More  int // waits that have no room
}

// A Node waits, or others wait for it.
type Node struct {
	Client
	Label    string // of the lock that the caller holds; empty: a server process, or callers that hold no lock that is known
	Wants    string // what it waits for, in words; empty: nothing
	Cycle    int    // the number of its cycle in [View.Cycles], from 1; 0: none
	Possible bool   // that cycle is not certain
	Arrows   []Arrow
}

// An Arrow is a wait.
type Arrow struct {
	To    int  // a node
	Cycle bool // it is part of a cycle
}

// Graph returns the waits of v with at most so many nodes, and at most four arrows
// from each. Cycles come first.
func (v *View) Graph(most int) Graph {
	d := drawing{view: v, most: most, places: make(map[int]int)}
	for i, c := range v.Cycles {
		for j, from := range c.nodes {
			wants := "waits for a row or a table"
			if w := c.Waits[j]; w.For != nil {
				wants = "waits for " + w.forLabel.text
			} else if w.Held != nil {
				wants = "waits for its process"
			}
			d.arrow(from, c.nodes[(j+1)%len(c.nodes)], wants, true)
			if at, drawn := d.places[from]; drawn && d.Nodes[at].Cycle == 0 {
				d.Nodes[at].Cycle, d.Nodes[at].Possible = i+1, !c.Certain
			}
		}
	}
	g := v.graph
	for _, w := range v.waiters {
		ends := w.BlockedBy
		from, wants := g.index[g.waiting(w)], "waits for "+v.label(w.Key).text
		if holders := v.blockers(w); len(holders) > 0 {
			ends = nil
			for _, h := range holders[:min(len(holders), maxArrows)] {
				d.arrow(from, g.index[g.partyOf(h)], wants, false)
			}
		}
		d.wait(from, ends, wants)
	}
	for _, b := range v.blocked {
		d.wait(g.index[party{pid: b.Process.PID}], b.BlockedBy, "waits for a row or a table")
	}
	return d.Graph
}

const maxArrows = 4

// A drawing makes a Graph.
type drawing struct {
	Graph
	view   *View
	most   int
	places map[int]int // in Nodes, by node of the waitGraph
}

// place returns the place of node n, if there is room.
func (d *drawing) place(n int) (at int, ok bool) {
	at, ok = d.places[n]
	if !ok && len(d.Nodes) < d.most {
		at, ok = len(d.Nodes), true
		node := Node{Client: d.view.graph.clients[n]}
		if p := d.view.graph.nodes[n]; p.held {
			node.Label = d.view.label(p.key).text
		}
		d.Nodes, d.places[n] = append(d.Nodes, node), at
	}
	return at, ok
}

// wait draws arrows to processes, and counts a wait without room.
func (d *drawing) wait(from int, pids []int, wants string) {
	if _, ok := d.place(from); !ok {
		d.More++
		return
	}
	for _, pid := range pids[:min(len(pids), maxArrows)] {
		d.arrow(from, d.view.graph.index[party{pid: pid}], wants, false)
	}
}

func (d *drawing) arrow(from, to int, wants string, cycle bool) {
	f, ok := d.place(from)
	if !ok {
		return
	}
	n := &d.Nodes[f]
	if n.Wants == "" {
		n.Wants = wants
	}
	t, ok := d.place(to)
	n = &d.Nodes[f] // place may have moved it
	if ok && !slices.ContainsFunc(n.Arrows, func(a Arrow) bool { return a.To == t }) {
		n.Arrows = append(n.Arrows, Arrow{t, cycle})
	}
}
