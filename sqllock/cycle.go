package sqllock

import (
	"fmt"
	"slices"
	"strings"
)

// A Cycle is a ring of waits: each waits for what the next one has, the last for what the first
// has. None of them goes on unless one gives up, or is ended.
type Cycle struct {
	Waits []Wait // from the one with the lowest PID, and then key

	// Certain: every wait is known to be that of the one who holds what the wait before wants. Else it is not known
	// which lock, or whether any, the callers hold who poll in the last step of the ring: one of their
	// Session's is in it.
	//
	// What polls is known as of its last heartbeat: only a Cycle that two snapshots, a heartbeat apart, have in
	// common is more than the shadow of one.
	Certain bool

	// EndsByItself: all waits are the server's, which sees such a ring and ends one of the waits (SQLSTATE 40P01)
	// after deadlock_timeout.
	EndsByItself bool
}

// A Wait is one of a Cycle: of a server process, or of a caller of a Session, which holds the locks of many callers.
type Wait struct {
	PID  int  // the server process that waits, or on which Held is held
	Held *Key // the lock of the caller that waits; nil: the server process does
	For  *Key // what it waits for; nil: a row, a table or the like, or, if Held is not nil, that its own server process goes on
}

// Cycles finds who waits for each other: server processes, by pg_blocking_pids, and callers of Sessions that write
// heartbeats, by what they hold. A Session's locks are each a party of its own, since they are held for different callers.
//
// For each party that is in a cycle it gives a shortest one that it is in, each once, those
// that are certain first. It does not see a process that waits on another connection than that of its locks, such as one
// that holds a Session's lock and waits for it in a transaction of its own.
func (s *Snapshot) Cycles() []Cycle {
	g := newWaitGraph(s)
	found := rings{seen: make(map[string]bool), certain: make(map[party]bool)}
	for _, p := range g.parties() {
		if ring := g.paths(p).to(p); ring != nil {
			found.add(ring, true)
		}
	}
	slices.SortStableFunc(found.cycles, compareCycles)
	certain := len(found.cycles)
	for _, w := range s.Waiters {
		if w.Poll != nil && !w.Poll.Holding {
			g.possible(w, &found)
		}
	}
	slices.SortStableFunc(found.cycles[certain:], compareCycles)
	return found.cycles
}

// possible finds the rings that close if callers who poll hold, meanwhile, one of their
// Session's locks. One such guess in a ring is the most: two waits of nobody knows whom say nothing.
func (g *waitGraph) possible(w Waiter, found *rings) {
	for _, wanted := range g.holders[w.Key] {
		from := partyOf(wanted)
		paths := g.paths(from)
		for _, h := range g.bySession[w.Poll.Session] {
			caller := partyOf(h)
			if way := paths.to(caller); way != nil && caller != from {
				found.add(append(way, step{caller, edge{to: from, key: w.Key, advisory: true}}), false)
			}
		}
	}
}

// rings is the cycles found, each once.
type rings struct {
	cycles  []Cycle
	seen    map[string]bool
	certain map[party]bool // parties of a certain cycle
}

func (r *rings) add(ring []step, certain bool) {
	if !certain && !slices.ContainsFunc(ring, func(s step) bool { return !r.certain[s.from] }) {
		return // who is certainly stuck need not be possibly stuck
	}
	c := cycleOf(ring, certain)
	if id := c.String(); !r.seen[id] {
		r.seen[id] = true
		r.cycles = append(r.cycles, c)
	}
	if certain {
		for _, s := range ring {
			r.certain[s.from] = true
		}
	}
}

// cycleOf turns ring so that the least party is the first.
func cycleOf(ring []step, certain bool) Cycle {
	least := 0
	for i, s := range ring {
		if compareParties(s.from, ring[least].from) < 0 {
			least = i
		}
	}
	c := Cycle{Certain: certain, EndsByItself: certain}
	for _, s := range slices.Concat(ring[least:], ring[:least]) {
		w := Wait{PID: s.from.pid}
		if s.from.held {
			w.Held = &s.from.key
		}
		if s.edge.advisory {
			w.For = &s.edge.key
		}
		c.Waits = append(c.Waits, w)
		c.EndsByItself = c.EndsByItself && s.edge.server
	}
	return c
}

func compareCycles(a, b Cycle) int {
	return slices.CompareFunc(a.Waits, b.Waits, func(a, b Wait) int { return compareParties(a.party(), b.party()) })
}

func (w Wait) party() party {
	if w.Held == nil {
		return party{pid: w.PID}
	}
	return party{w.PID, true, *w.Held}
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
