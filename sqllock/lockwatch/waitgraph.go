package lockwatch

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A node can wait, and others can wait for it. It is a server process, or a caller
// in a program, which is known by the lock that it holds.
//
// Invariant: a lock has a node of its own if hasNode says so. Any other lock
// belongs to the node of its process.
type node struct {
	pid  int
	held bool
	key  sqllock.Key // only if held
}

func (g *waitGraph) nodeOf(h Holder) node {
	if !g.hasNode(h) {
		return node{pid: h.Process.PID}
	}
	return node{h.Process.PID, true, h.Key}
}

// hasNode reports whether h has a node of its own. Without a registration, that is
// a lock of a ConnLocker or TxLocker. One on a Session's connection is too young to
// be registered, so no Poll is about it.
func (g *waitGraph) hasNode(h Holder) bool {
	return h.Registration != nil || !h.Shared && g.named[h.Key] && !h.Process.ofSession()
}

func compareNodes(a, b node) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), compareBools(a.held, b.held), compareKeys(a.key, b.key))
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

// An edge is a wait for another node. A node with several edges waits for all of
// their ends.
type edge struct {
	to     int          // index of a node
	key    *sqllock.Key // the key that is waited for; nil: no advisory lock
	poll   *Poll        // of a polling caller
	server bool         // the wait is in the server, which sees it
}

// A waitGraph is the certain waits of a Snapshot. Leases are not in it: nothing
// shows who waits for one, and an advisory lock on the same key is another lock.
//
// Invariant: nodes are in the order of compareNodes and do not change. reached has
// no true value between two calls of paths. The other
// fields name them by their index, since a queue of n waiters has n²/2 edges.
type waitGraph struct {
	nodes     []node
	edges     [][]edge                    // by node
	reached   []bool                      // by node: for the use of paths
	processes map[int]int                 // nodes of server processes, by PID
	named     map[sqllock.Key]bool        // keys that a Poll names as Held
	holders   map[sqllock.Key][]Holder    // by key
	holding   map[node]int                // nodes of locks
	callers   map[int][]int               // nodes of locks, by PID
	sessions  []int64                     // by node: the number of its Session; 0 if it is of none
	owners    map[sqllock.Key]map[int]int // nodes of locks, by key and PID
}

func newWaitGraph(s *Snapshot) *waitGraph {
	g := &waitGraph{
		processes: make(map[int]int), holders: make(map[sqllock.Key][]Holder), holding: make(map[node]int),
		callers: make(map[int][]int), owners: make(map[sqllock.Key]map[int]int), named: make(map[sqllock.Key]bool),
	}
	for _, w := range s.Waiters {
		if w.Poll != nil && w.Poll.Held != nil {
			g.named[*w.Poll.Held] = true
		}
	}
	g.number(s)
	for _, h := range s.Holders {
		if h.Lease == nil {
			g.place(h)
		}
	}
	for i := range s.Waiters {
		if w := &s.Waiters[i]; w.Poll == nil {
			g.serverWait(w)
		} else if w.Poll.Held != nil {
			g.pollWait(w)
		}
	}
	for _, b := range s.Blocked {
		for _, pid := range b.BlockedBy {
			g.wait(b.Process.PID, pid, nil, nil)
		}
	}
	g.releases()
	for _, edges := range g.edges {
		slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.to, b.to) })
	}
	return g
}

// number gives the nodes their indices.
func (g *waitGraph) number(s *Snapshot) {
	all := make(map[node]struct{})
	for _, h := range s.Holders {
		if h.Lease == nil {
			all[g.nodeOf(h)] = struct{}{}
			all[node{pid: h.Process.PID}] = struct{}{}
		}
	}
	for _, w := range s.Waiters {
		if w.Poll == nil {
			all[node{pid: w.Process.PID}] = struct{}{}
		}
	}
	for _, b := range s.Blocked {
		all[node{pid: b.Process.PID}] = struct{}{}
	}
	for n := range all {
		g.nodes = append(g.nodes, n)
	}
	slices.SortFunc(g.nodes, compareNodes)
	g.edges, g.sessions = make([][]edge, len(g.nodes)), make([]int64, len(g.nodes))
	for i, n := range g.nodes {
		if n.held {
			g.holding[n] = i
			g.callers[n.pid] = append(g.callers[n.pid], i)
		} else {
			g.processes[n.pid] = i
		}
	}
}

// place notes that h holds its key.
func (g *waitGraph) place(h Holder) {
	g.holders[h.Key] = append(g.holders[h.Key], h)
	if !g.hasNode(h) {
		return
	}
	i := g.indexOf(h)
	if h.Registration != nil {
		g.sessions[i] = h.Registration.Session
	}
	if g.owners[h.Key] == nil {
		g.owners[h.Key] = make(map[int]int)
	}
	g.owners[h.Key][h.Process.PID] = i
}

// indexOf returns the node of h.
func (g *waitGraph) indexOf(h Holder) int {
	if !g.hasNode(h) {
		return g.processes[h.Process.PID]
	}
	return g.holding[g.nodeOf(h)]
}

func (g *waitGraph) add(from int, e edge) { g.edges[from] = append(g.edges[from], e) }

// wait adds a wait in the server of process pid for process blocker. If owners has
// a node of blocker, the wait is for that one: owners are the nodes of key.
func (g *waitGraph) wait(pid, blocker int, key *sqllock.Key, owners map[int]int) {
	to, ok := owners[blocker]
	if !ok {
		to, ok = g.processes[blocker]
	}
	if ok {
		g.add(g.processes[pid], edge{to: to, key: key, server: true})
	}
}

// serverWait adds the wait of a server process for the holders of a key, and for
// the waiters ahead of it.
func (g *waitGraph) serverWait(w *Waiter) {
	owners := g.owners[w.Key]
	from := g.processes[w.Process.PID]
	g.edges[from] = slices.Grow(g.edges[from], len(w.BlockedBy))
	for _, pid := range w.BlockedBy {
		g.wait(w.Process.PID, pid, &w.Key, owners)
	}
}

// pollWait adds the wait of a caller that holds one key for the holders of another.
func (g *waitGraph) pollWait(w *Waiter) {
	from, ok := g.poller(w.Poll)
	if !ok {
		return
	}
	for _, h := range g.holders[w.Key] {
		g.add(from, edge{to: g.indexOf(h), key: &w.Key, poll: w.Poll})
	}
}

// poller returns the node of p.Held, which the callers of p held at their last
// heartbeat. There is none if another caller has acquired the key since. The lock
// may be on another Session of their process, or on a connection or transaction of
// their own, but only an exclusive lock is certainly theirs then.
func (g *waitGraph) poller(p *Poll) (int, bool) {
	for _, own := range []bool{true, false} {
		for _, h := range g.holders[*p.Held] {
			r := h.Registration
			if r == nil || r.Acquired.After(p.Heartbeat) {
				continue
			}
			if own && r.Session == p.Session || !own && !h.Shared {
				return g.indexOf(h), true
			}
		}
	}
	for _, h := range g.holders[*p.Held] {
		if h.Registration == nil && g.hasNode(h) {
			return g.indexOf(h), true
		}
	}
	return 0, false
}

// releases adds a wait of each registered lock for its server process, if that
// process waits itself. Its Session cannot release the lock meanwhile.
func (g *waitGraph) releases() {
	for pid, callers := range g.callers {
		process := g.processes[pid]
		if len(g.edges[process]) == 0 {
			continue
		}
		for _, c := range callers {
			g.add(c, edge{to: process, server: true})
		}
	}
}
