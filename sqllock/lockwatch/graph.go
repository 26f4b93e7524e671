package lockwatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A party can wait, and others can wait for it. It is a server process, or a caller
// in a program, which is known by the lock that it holds.
//
// Invariant: a lock with a registration has a party of its own. Any other lock
// belongs to the party of its process.
type party struct {
	pid  int
	held bool
	key  dialect.Key // only if held
}

func compareParties(a, b party) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), compareFirst(b.held, a.held), compareIDs(a.key, b.key))
}

// An edge is a wait of one party for another.
type edge struct {
	from, to party
	wait     *Waiter // nil: not for an advisory lock
}

// inServer reports whether the wait is in the server, which sees it.
func (e edge) inServer() bool { return e.wait == nil || e.wait.Poll == nil }

// A waitGraph is the waits of a Snapshot. Leases are not in it: nothing shows who
// waits for one, and an advisory lock on the same key is another lock. Neither are
// callers of a Session that hold no lock that is known: no other waits for them.
//
// A waiter waits for the holders of its key. Those ahead of it in the queue count
// only where it waits for no holder, as a reader behind a writer. Otherwise they wait
// for the same holders, and a queue of n waiters would have n²/2 edges.
type waitGraph struct {
	view  *View
	waits map[party][]edge
}

func newWaitGraph(v *View) *waitGraph {
	g := &waitGraph{view: v, waits: make(map[party][]edge)}
	for _, w := range v.waiters {
		from, known := g.waiting(w)
		if !known {
			continue
		}
		holders, pids := v.blockers(w)
		for _, h := range holders {
			g.add(edge{from, partyOf(h), w})
		}
		for _, pid := range pids {
			g.add(edge{from, party{pid: pid}, w})
		}
	}
	for _, b := range v.blocked {
		for _, pid := range b.BlockedBy {
			g.add(edge{party{pid: b.Process.PID}, party{pid: pid}, nil})
		}
	}
	for _, holders := range v.holders {
		for _, h := range holders {
			// Its Session cannot release the lock while the process waits.
			if process := (party{pid: h.Process.PID}); h.Registration != nil && len(g.waits[process]) > 0 {
				g.add(edge{partyOf(h), process, nil})
			}
		}
	}
	for _, edges := range g.waits {
		slices.SortStableFunc(edges, func(a, b edge) int { return compareParties(a.to, b.to) })
	}
	return g
}

func (g *waitGraph) add(e edge) { g.waits[e.from] = append(g.waits[e.from], e) }

// partyOf returns the party of h.
func partyOf(h *Holder) party {
	if h.Registration == nil {
		return party{pid: h.Process.PID}
	}
	return party{pid: h.Process.PID, held: true, key: idOf(h.Key)}
}

// waiting returns the party that waits in w, if it is known. Callers of a Session
// held a lock at their last heartbeat. That may be on another Session of their
// process, but only an exclusive lock is certainly theirs then. It is not theirs if
// another caller has acquired the key since.
func (g *waitGraph) waiting(w *Waiter) (p party, known bool) {
	poll := w.Poll
	if poll == nil {
		return party{pid: w.Process.PID}, true
	}
	if poll.Held == nil {
		return p, false
	}
	for _, h := range g.view.holders[idOf(*poll.Held)] {
		r := h.Registration
		if r == nil || r.Acquired.After(poll.Heartbeat) {
			continue
		}
		if r.Session == poll.Session {
			return partyOf(h), true
		}
		if !h.Shared {
			p, known = partyOf(h), true
		}
	}
	return p, known
}

// cycles returns the cycles of g.
func (g *waitGraph) cycles() []Cycle {
	g.prune()
	var found [][]edge
	in := make(map[party]bool) // in a cycle that is found
	for _, start := range slices.SortedFunc(maps.Keys(g.waits), compareParties) {
		if in[start] {
			continue
		}
		edges := g.shortest(start)
		for _, e := range edges {
			in[e.from] = true
		}
		if edges != nil {
			found = append(found, fromLeast(edges))
		}
	}
	compare := func(x, y edge) int { return compareParties(x.from, y.from) }
	slices.SortFunc(found, func(a, b []edge) int { return slices.CompareFunc(a, b, compare) })
	all := []Cycle{}
	for _, edges := range found {
		all = append(all, g.cycle(edges))
	}
	return all
}

// prune removes the parties whose waits lead to no cycle. A Snapshot mostly has many
// waits and no cycle, so nothing is left to search.
func (g *waitGraph) prune() {
	waitedBy, left := make(map[party][]party), make(map[party]int)
	var free []party // they wait for nothing that is left
	for from, edges := range g.waits {
		left[from] = len(edges)
		for _, e := range edges {
			waitedBy[e.to] = append(waitedBy[e.to], from)
		}
	}
	for p := range waitedBy {
		if left[p] == 0 {
			free = append(free, p)
		}
	}
	for ; len(free) > 0; free = free[1:] {
		delete(g.waits, free[0])
		for _, from := range waitedBy[free[0]] {
			if left[from]--; left[from] == 0 {
				free = append(free, from)
			}
		}
	}
}

// shortest returns a shortest way from start back to it, or nil.
func (g *waitGraph) shortest(start party) (way []edge) {
	arrivals := make(map[party]edge)
	for queue := []party{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.waits[queue[0]] {
			if _, reached := arrivals[e.to]; reached {
				continue
			}
			arrivals[e.to] = e
			if e.to != start {
				queue = append(queue, e.to)
				continue
			}
			for way = []edge{e}; e.from != start; way = append(way, e) {
				e = arrivals[e.from]
			}
			slices.Reverse(way)
			return way
		}
	}
	return nil
}

// fromLeast returns a cycle from its least party on.
func fromLeast(edges []edge) []edge {
	least := 0
	for i, e := range edges {
		if compareParties(e.from, edges[least].from) < 0 {
			least = i
		}
	}
	return slices.Concat(edges[least:], edges[:least])
}

// cycle returns edges as a Cycle.
func (g *waitGraph) cycle(edges []edge) Cycle {
	v, c := g.view, Cycle{EndsByItself: true}
	for _, e := range edges {
		w, since := Wait{Client: v.clients([]int{e.from.pid})[0]}, v.processes[e.from.pid].StateSince
		if e.from.held {
			i := slices.IndexFunc(v.holders[e.from.key], func(h *Holder) bool { return partyOf(h) == e.from })
			h := v.holders[e.from.key][i]
			w.Client, w.Held, w.heldLabel, since = h.client(), &h.Key, v.label(h.Key), time.Time{}
		}
		if e.wait != nil {
			w.For, w.forLabel, since = &e.wait.Key, v.label(e.wait.Key), e.wait.Since
		}
		if !e.inServer() {
			w.heartbeat = e.wait.Poll.Heartbeat
		}
		if since.After(c.Since) {
			c.Since = since
		}
		c.Waits = append(c.Waits, w)
		c.EndsByItself = c.EndsByItself && e.inServer()
	}
	return c
}
