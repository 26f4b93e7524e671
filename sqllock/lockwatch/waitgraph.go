package lockwatch

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A node is who may wait and be waited for: a server process, or a caller of a Session, known by the
// lock that it holds.
//
// Invariant: a lock with a registration is a node of its own; one without is its process's.
type node struct {
	pid  int
	held bool
	key  sqllock.Key // if held
}

func nodeOf(h Holder) node {
	if h.Registration == nil {
		return node{pid: h.Process.PID}
	}
	return node{h.Process.PID, true, h.Key}
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

// An edge is a wait for another node. A node with several needs all of those it waits for.
type edge struct {
	to     int          // index of a node
	key    *sqllock.Key // that is waited for; nil: no advisory lock
	poll   *Poll        // nil: the wait is in the server, which sees it
	server bool
}

// A waitGraph is who certainly waits for whom, of those who hold something or wait in the server. Others are in no ring.
//
// Nodes go by their index, in the order of compareNodes: a queue of n waiters has n²/2 edges.
type waitGraph struct {
	nodes     []node
	edges     [][]edge                    // by node
	processes map[int]int                 // server processes, by PID
	holders   map[sqllock.Key][]Holder    // of each key
	holding   map[node]int                // nodes of registered locks
	callers   map[int][]int               // processes' registered locks
	sessions  []int64                     // by node: the Session's number; 0 for a server process
	owners    map[sqllock.Key]map[int]int // registered locks of a key, by PID
}

func newWaitGraph(s *Snapshot) *waitGraph {
	g := &waitGraph{processes: make(map[int]int), holders: make(map[sqllock.Key][]Holder), holding: make(map[node]int),
		callers: make(map[int][]int), owners: make(map[sqllock.Key]map[int]int)}
	g.number(s)
	for _, h := range s.Holders {
		g.place(h)
	}
	for i := range s.Waiters {
		if w := &s.Waiters[i]; w.Poll == nil {
			g.serverWait(w)
		} else if w.Poll.Holding {
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
		all[nodeOf(h)] = struct{}{}
		all[node{pid: h.Process.PID}] = struct{}{}
	}
	for _, w := range s.Waiters {
		if w.Poll == nil {
			all[node{pid: w.Process.PID}] = struct{}{}
		}
	}
	for _, b := range s.Blocked {
		all[node{pid: b.Process.PID}] = struct{}{}
	}
	for p := range all {
		g.nodes = append(g.nodes, p)
	}
	slices.SortFunc(g.nodes, compareNodes)
	g.edges, g.sessions = make([][]edge, len(g.nodes)), make([]int64, len(g.nodes))
	for i, p := range g.nodes {
		if p.held {
			g.holding[p] = i
			g.callers[p.pid] = append(g.callers[p.pid], i)
		} else {
			g.processes[p.pid] = i
		}
	}
}

// place notes who holds what.
func (g *waitGraph) place(h Holder) {
	g.holders[h.Key] = append(g.holders[h.Key], h)
	if h.Registration == nil {
		return
	}
	i := g.indexOf(h)
	g.sessions[i] = h.Registration.Session
	if g.owners[h.Key] == nil {
		g.owners[h.Key] = make(map[int]int)
	}
	g.owners[h.Key][h.Process.PID] = i
}

// indexOf is the node of h.
func (g *waitGraph) indexOf(h Holder) int {
	if h.Registration == nil {
		return g.processes[h.Process.PID]
	}
	return g.holding[nodeOf(h)]
}

func (g *waitGraph) add(from int, e edge) { g.edges[from] = append(g.edges[from], e) }

// wait has a process wait in the server for another, or for its lock of key, which is one of owners.
func (g *waitGraph) wait(pid, blocker int, key *sqllock.Key, owners map[int]int) {
	to, ok := owners[blocker]
	if !ok {
		to, ok = g.processes[blocker]
	}
	if ok {
		g.add(g.processes[pid], edge{to: to, key: key, server: true})
	}
}

// serverWait has a process wait for holders of a key, and for those who are before it in the queue.
func (g *waitGraph) serverWait(w *Waiter) {
	owners := g.owners[w.Key]
	from := g.processes[w.Process.PID]
	g.edges[from] = slices.Grow(g.edges[from], len(w.BlockedBy))
	for _, pid := range w.BlockedBy {
		g.wait(w.Process.PID, pid, &w.Key, owners)
	}
}

// pollWait has the holder of one key wait for those of another.
func (g *waitGraph) pollWait(w *Waiter) {
	from, ok := g.poller(w.Poll)
	if !ok {
		return
	}
	for _, h := range g.holders[w.Key] {
		g.add(from, edge{to: g.indexOf(h), key: &w.Key, poll: w.Poll})
	}
}

// poller is the holder of the lock that the callers of p had when they were last heard of: it may
// be another's meanwhile. The lock may be on another Session of theirs, if it excludes everybody else.
func (g *waitGraph) poller(p *Poll) (int, bool) {
	for _, own := range []bool{true, false} {
		for _, h := range g.holders[p.Held] {
			r := h.Registration
			if r == nil || r.Acquired.After(p.Heartbeat) {
				continue
			}
			if own && r.Session == p.Session || !own && !h.Shared {
				return g.indexOf(h), true
			}
		}
	}
	return 0, false
}

// releases has each of a Session's locks wait for the Session's server process, where that waits itself: it
// cannot give any back meanwhile.
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
