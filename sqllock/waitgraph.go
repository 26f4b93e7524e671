package sqllock

import (
	"cmp"
	"maps"
	"slices"
)

// A party is who may wait and be waited for: a server process, or a caller of a Session, known by the
// lock that it holds.
//
// Invariant: a lock with a registration is a party of its own; one without is its process's.
type party struct {
	pid  int
	held bool
	key  Key // if held
}

func partyOf(h Holder) party {
	if h.Registration == nil {
		return party{pid: h.Process.PID}
	}
	return party{h.Process.PID, true, h.Key}
}

func compareParties(a, b party) int {
	return cmp.Or(cmp.Compare(a.pid, b.pid), compareBools(a.held, b.held), compareKeys(a.key, b.key))
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// An edge is a wait for another party, which all others it waits for do not make up for.
type edge struct {
	to       party
	key      Key // that is waited for
	advisory bool
	server   bool // the wait is in the server, which sees it
}

// A waitGraph is who certainly waits for whom.
type waitGraph struct {
	edges     map[party][]edge
	holders   map[Key][]Holder
	bySession map[int64][]Holder // those with a registration
}

func newWaitGraph(s *Snapshot) *waitGraph {
	g := &waitGraph{edges: make(map[party][]edge), holders: make(map[Key][]Holder), bySession: make(map[int64][]Holder)}
	for _, h := range s.Holders {
		g.holders[h.Key] = append(g.holders[h.Key], h)
		if h.Registration != nil {
			g.bySession[h.Registration.Session] = append(g.bySession[h.Registration.Session], h)
		}
	}
	for _, w := range s.Waiters {
		if w.Poll == nil {
			g.serverWait(w)
		} else if w.Poll.Holding {
			g.pollWait(w)
		}
	}
	for _, b := range s.Blocked {
		for _, pid := range b.BlockedBy {
			g.add(party{pid: b.Process.PID}, edge{to: party{pid: pid}, server: true})
		}
	}
	g.releases(s)
	for _, edges := range g.edges {
		slices.SortStableFunc(edges, func(a, b edge) int { return compareParties(a.to, b.to) })
	}
	return g
}

func (g *waitGraph) add(from party, e edge) { g.edges[from] = append(g.edges[from], e) }

// serverWait has a process wait for holders of a key, and for those who are before it in the queue.
func (g *waitGraph) serverWait(w Waiter) {
	for _, pid := range w.BlockedBy {
		to := party{pid: pid}
		for _, h := range g.holders[w.Key] {
			if h.Process.PID == pid {
				to = partyOf(h)
			}
		}
		g.add(party{pid: w.Process.PID}, edge{to: to, key: w.Key, advisory: true, server: true})
	}
}

// pollWait has the holder of one key wait for those of another.
func (g *waitGraph) pollWait(w Waiter) {
	from, ok := g.poller(w.Poll)
	if !ok {
		return
	}
	for _, h := range g.holders[w.Key] {
		g.add(from, edge{to: partyOf(h), key: w.Key, advisory: true})
	}
}

// poller is the holder of the lock that the callers of p had when they were last heard of: it may
// be another's meanwhile. The lock may be on another Session of theirs, if it excludes everybody else.
func (g *waitGraph) poller(p *Poll) (party, bool) {
	for _, own := range []bool{true, false} {
		for _, h := range g.holders[p.Held] {
			r := h.Registration
			if r == nil || r.Acquired.After(p.Heartbeat) {
				continue
			}
			if own && r.Session == p.Session || !own && !h.Shared {
				return partyOf(h), true
			}
		}
	}
	return party{}, false
}

// releases has each of a Session's locks wait for the Session's server process, where that waits itself: it
// cannot give any back meanwhile.
func (g *waitGraph) releases(s *Snapshot) {
	for _, h := range s.Holders {
		process := party{pid: h.Process.PID}
		if h.Registration != nil && len(g.edges[process]) > 0 {
			g.add(partyOf(h), edge{to: process, server: true})
		}
	}
}

// parties is who waits, in order.
func (g *waitGraph) parties() []party {
	return slices.SortedFunc(maps.Keys(g.edges), compareParties)
}

// A step is a wait on the way to somebody.
type step struct {
	from party
	edge edge
}

// paths is the last steps of shortest ways from one party to the others, and back to itself.
type paths struct {
	start party
	last  map[party]step
}

func (g *waitGraph) paths(start party) paths {
	p := paths{start, make(map[party]step)}
	for queue := []party{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.edges[queue[0]] {
			if _, reached := p.last[e.to]; !reached {
				p.last[e.to] = step{queue[0], e}
				queue = append(queue, e.to)
			}
		}
	}
	return p
}

// to is the steps from the start to end, at least one; nil if there is no way.
func (p paths) to(end party) (way []step) {
	at := end
	for {
		s, reached := p.last[at]
		if !reached {
			return nil
		}
		way = append(way, s)
		if at = s.from; at == p.start {
			slices.Reverse(way)
			return way
		}
	}
}
