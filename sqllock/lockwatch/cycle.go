package lockwatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Cycle is a ring of waits: each waits for what the next one has, the last for what the first
// has. None of them goes on unless one gives up, or is ended.
type Cycle struct {
	Waits []Wait // from the one with the lowest PID, and then key

	// Certain: every wait is known to be that of the one who holds what the wait before wants. Else it is not known
	// which lock, if any, the polling callers in the last step hold: one of their Session's is in it.
	//
	// What polls is known as of its last heartbeat: what one Snapshot shows may be over already. A Cycle that two have in
	// common, between which all its pollers have had a heartbeat, is more than that.
	Certain bool

	// EndsByItself: all waits are the server's, which sees such a ring and ends one of the waits (SQLSTATE 40P01)
	// after deadlock_timeout.
	EndsByItself bool
}

// A Wait is one of a Cycle: of a server process, or of a caller of a Session, which holds the locks of many callers.
type Wait struct {
	PID  int          // the server process that waits, or on which Held is held
	Held *sqllock.Key // the lock of the caller that waits; nil: the server process does
	For  *sqllock.Key // what it waits for; nil: a row, a table or the like, or, if Held is not nil, that its own server process goes on

	heartbeat time.Time // of a caller that polls; else zero
}

// Cycles finds who waits for each other: server processes, by pg_blocking_pids, and callers of Sessions that write
// heartbeats, by what they hold. A Session's locks are each a node of its own, since they are held for different callers.
//
// For each node that is in a cycle it gives a shortest one that it is in, each once, those
// that are certain first. It does not see a process that waits on another connection than that of its locks, such as one
// that holds a Session's lock and waits for it in a transaction of its own.
func (s *Snapshot) Cycles() []Cycle {
	g := newWaitGraph(s)
	found := cycleSet{graph: g, seen: make(map[string]bool), certain: make(map[int]bool)}
	for _, component := range g.components() {
		within := make([]bool, len(g.nodes))
		for _, p := range component {
			within[p] = true
		}
		for _, p := range component {
			found.add(g.paths(p, p, within).to(p), true)
		}
	}
	slices.SortStableFunc(found.cycles, compareCycles)
	certain := len(found.cycles)
	ways := make(map[int]*paths)
	for i := range s.Waiters {
		if w := &s.Waiters[i]; w.Poll != nil && !w.Poll.Holding {
			g.possible(w, ways, &found)
		}
	}
	slices.SortStableFunc(found.cycles[certain:], compareCycles)
	return found.cycles
}

// possible finds the rings that close if callers who poll hold, meanwhile, one of their
// Session's locks. One such guess in a ring is the most: two waits of nobody knows whom say nothing.
// ways is what it remembers.
func (g *waitGraph) possible(w *Waiter, ways map[int]*paths, found *cycleSet) {
	for _, wanted := range g.holders[w.Key] {
		from := g.indexOf(wanted)
		if ways[from] == nil {
			ways[from] = g.paths(from, -1, nil)
		}
		for _, caller := range ways[from].reached {
			if caller != from && g.nodes[caller].held && g.sessions[caller] == w.Poll.Session {
				closing := step{caller, edge{to: from, key: &w.Key, poll: w.Poll}}
				found.add(append(ways[from].to(caller), closing), false)
			}
		}
	}
}

// cycleSet is the cycles found, each once.
type cycleSet struct {
	graph   *waitGraph
	cycles  []Cycle
	seen    map[string]bool
	certain map[int]bool // nodes of a certain cycle
}

func (r *cycleSet) add(steps []step, certain bool) {
	if !certain && !slices.ContainsFunc(steps, func(s step) bool { return !r.certain[s.from] }) {
		return // who is certainly stuck need not be possibly stuck
	}
	c := r.graph.cycle(steps, certain)
	if id := c.String(); !r.seen[id] {
		r.seen[id] = true
		r.cycles = append(r.cycles, c)
	}
	if certain {
		for _, s := range steps {
			r.certain[s.from] = true
		}
	}
}

// cycle turns steps so that the least node is the first.
func (g *waitGraph) cycle(steps []step, certain bool) Cycle {
	least := 0
	for i, s := range steps {
		if s.from < steps[least].from {
			least = i
		}
	}
	c := Cycle{Certain: certain, EndsByItself: certain}
	for _, s := range slices.Concat(steps[least:], steps[:least]) {
		p := g.nodes[s.from]
		w := Wait{PID: p.pid, For: s.edge.key}
		if p.held {
			w.Held = &p.key
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

// String is c in words, with the keys' numbers and without names.
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
		return text + " (PostgreSQL ends it)"
	}
	return text
}

// String is w in words.
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
