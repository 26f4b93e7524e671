package lockwatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Cycle is a deadlock. Each in it waits for what the next one has, and the last
// waits for what the first one has. None of them goes on until one gives up or is
// ended.
type Cycle struct {
	Waits []Wait // in the order of the waits; the first has the lowest PID, and then key

	// Certain: it is known who waits in each step. If it is false, the polling
	// callers of the last step may hold another lock of their Session, or none.
	//
	// Polling callers are known as of their last heartbeat, so one Snapshot may
	// show a Cycle that is over. If two Snapshots show it, and all its polling
	// callers had a heartbeat in between, it is a deadlock.
	Certain bool

	// EndsByItself: every wait is in the server, which finds such a cycle and ends
	// one of the waits. PostgreSQL does so after deadlock_timeout (SQLSTATE 40P01).
	// MariaDB and MySQL do so at once: GET_LOCK fails with error 1213 or 3058. So a
	// Snapshot of theirs hardly ever shows one.
	EndsByItself bool
}

// A Wait is one step of a Cycle. It is the wait of a server process, or that of
// a caller of a Session. A Session holds the locks of many callers on one server
// process, so the caller is known by the lock that it holds.
type Wait struct {
	PID  int          // the server process that waits, or on which Held is held
	Held *sqllock.Key // the lock of the caller that waits; nil: the server process itself waits

	// For is the key that is waited for. It is nil for a wait for a row, a table or
	// another thing. It is nil too if the caller waits until its own server process
	// goes on; then Held is not nil.
	For *sqllock.Key

	heartbeat time.Time // of a polling caller; otherwise zero
}

// Cycles returns the cycles of waits in s: for each server process and each caller
// that is in a cycle a shortest one. No cycle appears twice. Certain cycles come
// first.
//
// Waits of server processes are those of pg_blocking_pids. Callers are known if
// their Session writes heartbeats ([sqllock.WithRegistry]). A caller that holds a
// lock of such a Session is also known while it waits on another connection: at a
// ConnLocker, at a TxLocker or in LockTx. So is the holder of a ConnLocker's or
// TxLocker's lock while it waits for the Session. In each case the context of the
// call must carry the lock ([sqllock.Lock.Bind]), and both must be in one database.
//
// Cycles does not find these deadlocks:
//   - All locks in it are of ConnLockers and TxLockers.
//   - A program waits on a second connection in a way of its own, with a statement
//     of SQL for example, or the context does not carry the lock.
//   - It leads through a lease table, or through polling callers on MySQL.
func (s *Snapshot) Cycles() []Cycle {
	g := newWaitGraph(s)
	found := cycleSet{graph: g, seen: make(map[string]bool), certain: make(map[int]bool)}
	for _, component := range g.components() {
		within := make([]bool, len(g.nodes))
		for _, n := range component {
			within[n] = true
		}
		for _, n := range component {
			found.add(g.paths(n, n, within).toStop(), true)
			if g.isOneCycle(component, within) {
				break // all its nodes have this cycle
			}
		}
	}
	slices.SortStableFunc(found.cycles, compareCycles)
	certain := len(found.cycles)
	known := make(map[int]*paths)
	for i := range s.Waiters {
		if w := &s.Waiters[i]; w.Poll != nil && w.Poll.Held == nil {
			g.possible(w, known, &found)
		}
	}
	slices.SortStableFunc(found.cycles[certain:], compareCycles)
	return found.cycles
}

// possible adds the cycles that exist if the polling callers of w hold one of the
// locks of their Session. A cycle has at most one such guess. With two guesses it
// would say nothing.
//
// known holds the paths found so far, by their start.
func (g *waitGraph) possible(w *Waiter, known map[int]*paths, found *cycleSet) {
	for _, wanted := range g.holders[w.Key] {
		from := g.indexOf(wanted)
		if known[from] == nil {
			known[from] = g.paths(from, -1, nil)
		}
		for i, a := range known[from].arrivals {
			caller := a.last.edge.to
			if caller != from && g.nodes[caller].held && g.sessions[caller] == w.Poll.Session {
				closing := step{caller, edge{to: from, key: &w.Key, poll: w.Poll}}
				found.add(append(known[from].to(i), closing), false)
			}
		}
	}
}

// A cycleSet collects cycles.
//
// Invariant: no two cycles have the same text. A cycle that is not certain has a
// node that is in no certain one.
type cycleSet struct {
	graph   *waitGraph
	cycles  []Cycle
	seen    map[string]bool // texts of cycles
	certain map[int]bool    // nodes of certain cycles
}

func (set *cycleSet) add(steps []step, certain bool) {
	if !certain && !slices.ContainsFunc(steps, func(s step) bool { return !set.certain[s.from] }) {
		return
	}
	c := set.graph.cycle(steps, certain)
	if id := c.String(); !set.seen[id] {
		set.seen[id] = true
		set.cycles = append(set.cycles, c)
	}
	if certain {
		for _, s := range steps {
			set.certain[s.from] = true
		}
	}
}

// cycle returns steps as a Cycle that begins with its least node.
func (g *waitGraph) cycle(steps []step, certain bool) Cycle {
	least := 0
	for i, s := range steps {
		if s.from < steps[least].from {
			least = i
		}
	}
	c := Cycle{Certain: certain, EndsByItself: certain}
	for _, s := range slices.Concat(steps[least:], steps[:least]) {
		n := g.nodes[s.from]
		w := Wait{PID: n.pid, For: s.edge.key}
		if n.held {
			w.Held = &n.key
		}
		if s.edge.poll != nil {
			w.heartbeat = s.edge.poll.Heartbeat
		}
		c.Waits = append(c.Waits, w)
		c.EndsByItself = c.EndsByItself && s.edge.server
	}
	return c
}

func compareCycles(a, b Cycle) int {
	return slices.CompareFunc(a.Waits, b.Waits, func(a, b Wait) int { return compareNodes(a.node(), b.node()) })
}

func (w Wait) node() node {
	if w.Held == nil {
		return node{pid: w.PID}
	}
	return node{w.PID, true, *w.Held}
}

// String returns c in words. It has the keys as numbers, and no names.
func (c Cycle) String() string {
	waits := make([]string, len(c.Waits))
	for i, w := range c.Waits {
		waits[i] = w.String()
	}
	text := strings.Join(waits, " -> ")
	switch {
	case !c.Certain:
		return text + " (possible)"
	case c.EndsByItself:
		return text + " (the server ends it)"
	}
	return text
}

// String returns w in words. It has the keys as numbers, and no names.
func (w Wait) String() string {
	who := fmt.Sprintf("process %d", w.PID)
	if w.Held != nil {
		who = fmt.Sprintf("the holder of key %s on process %d", keyText(*w.Held), w.PID)
	}
	switch {
	case w.For != nil:
		return who + " waits for key " + keyText(*w.For)
	case w.Held != nil:
		return who + " waits for that process"
	}
	return who + " waits for a row, a table or the like"
}
