package lockui

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	maxNodes = 40 // of a drawing; the tables have the rest
	maxFan   = 4  // edges of one node: a queue of n waiters has n²/2
)

// A graph is a drawing of waits. An arrow goes from a node that waits to one that it
// waits for. Deadlocks have dashed arrows, a double frame and a number.
type graph struct {
	Width, Height int
	Nodes         []*graphNode
	Edges         []*graphEdge
	More          int    // waits that are not drawn
	Text          string // what the drawing shows, for readers who do not see it
}

type graphNode struct {
	X, Y     int
	Name     string
	Wants    string // "waits for key 5", or empty
	Cycle    int    // the number of its cycle; 0: none
	Possible bool   // the cycle is not certain

	rank int // the longest way to a node that waits for nothing
	out  []*graphNode
}

type graphEdge struct {
	Path     string // of an SVG path
	Cycle    bool
	from, to *graphNode
}

// A nodeID is a server process, or a caller of a Session, which is known by the lock
// that it holds. Callers that hold nothing are known by their Session.
type nodeID struct {
	pid     int
	held    bool
	key     sqllock.Key
	session int64
}

// A graphBuilder collects nodes and edges. It takes cycles first, since a drawing
// has no room for all waits.
type graphBuilder struct {
	graph   graph
	nodes   map[nodeID]*graphNode
	edges   map[[2]*graphNode]*graphEdge
	holders map[sqllock.Key][]*lockwatch.Holder
}

// drawGraph draws the waits of s.
func drawGraph(s *lockwatch.Snapshot, cycles []lockwatch.Cycle) graph {
	b := &graphBuilder{nodes: make(map[nodeID]*graphNode), edges: make(map[[2]*graphNode]*graphEdge), holders: make(map[sqllock.Key][]*lockwatch.Holder)}
	for i := range s.Holders {
		if h := &s.Holders[i]; !h.SecretCheck && h.Lease == nil {
			b.holders[h.Key] = append(b.holders[h.Key], h)
		}
	}
	for i, c := range cycles {
		b.cycle(i+1, c)
	}
	for i := range s.Waiters {
		b.waiter(&s.Waiters[i])
	}
	for i := range s.Blocked {
		b.wait(nodeID{pid: s.Blocked[i].Process.PID}, "waits for a row or a table", b.processes(s.Blocked[i].BlockedBy))
	}
	b.graph.place()
	b.graph.Text = fmt.Sprintf("A drawing of %s and %s. The table below has the same in words.",
		counted(len(b.graph.Nodes), "holder or waiter", "holders and waiters"), counted(len(cycles), "cycle", "cycles"))
	return b.graph
}

// node returns the node of id, or nil if the drawing has no room for it.
func (b *graphBuilder) node(id nodeID) *graphNode {
	n := b.nodes[id]
	if n == nil && len(b.graph.Nodes) < maxNodes {
		n = &graphNode{Name: id.text()}
		b.nodes[id] = n
		b.graph.Nodes = append(b.graph.Nodes, n)
	}
	return n
}

func (id nodeID) text() string {
	switch {
	case id.held:
		return "holder of " + keyText(id.key)
	case id.session != 0:
		return "callers of " + strconv.FormatInt(id.session, 10)
	case id.pid == 0:
		return "prepared transaction"
	}
	return "process " + strconv.Itoa(id.pid)
}

func (b *graphBuilder) edge(from, to *graphNode, cycle bool) {
	if e := b.edges[[2]*graphNode{from, to}]; e != nil {
		e.Cycle = e.Cycle || cycle
		return
	}
	e := &graphEdge{from: from, to: to, Cycle: cycle}
	b.edges[[2]*graphNode{from, to}] = e
	b.graph.Edges = append(b.graph.Edges, e)
	from.out = append(from.out, to)
}

// cycle adds the nodes and edges of cycle number i.
func (b *graphBuilder) cycle(i int, c lockwatch.Cycle) {
	ids := make([]nodeID, len(c.Waits))
	for j, w := range c.Waits {
		ids[j] = nodeID{pid: w.PID}
		if w.Held != nil {
			ids[j] = nodeID{pid: w.PID, held: true, key: *w.Held}
		}
	}
	for j, w := range c.Waits {
		from, to := b.node(ids[j]), b.node(ids[(j+1)%len(ids)])
		if from == nil || to == nil {
			continue // waiter and wait count it
		}
		switch {
		case w.For != nil:
			from.Wants = "waits for " + keyText(*w.For)
		case w.Held != nil:
			from.Wants = "waits for its process"
		default:
			from.Wants = "waits for a row or a table"
		}
		if from.Cycle == 0 {
			from.Cycle, from.Possible = i, !c.Certain
		}
		b.edge(from, to, true)
	}
}

// waiter adds the wait of w for the holders of its key, or for waiters ahead of it.
func (b *graphBuilder) waiter(w *lockwatch.Waiter) {
	id, wants := nodeID{pid: w.Process.PID}, "waits for "+keyText(w.Key)
	var ends []nodeID
	for _, h := range b.holders[w.Key] {
		if len(ends) == maxFan {
			break
		}
		if w.Poll != nil || slices.Contains(w.BlockedBy, h.Process.PID) {
			ends = append(ends, nodeOf(h))
		}
	}
	if w.Poll != nil {
		id = b.poller(w.Poll)
	} else if len(ends) == 0 {
		ends = b.processes(w.BlockedBy)
	}
	b.wait(id, wants, ends)
}

// poller returns the node of the callers of p: that of the lock they hold if it is
// known, and their Session otherwise.
func (b *graphBuilder) poller(p *lockwatch.Poll) nodeID {
	if p.Held != nil {
		for _, h := range b.holders[*p.Held] {
			if h.Registration != nil && h.Registration.Session == p.Session {
				return nodeOf(h)
			}
		}
	}
	return nodeID{session: p.Session}
}

func nodeOf(h *lockwatch.Holder) nodeID {
	if h.Registration == nil {
		return nodeID{pid: h.Process.PID}
	}
	return nodeID{pid: h.Process.PID, held: true, key: h.Key}
}

func (b *graphBuilder) processes(pids []int) (ids []nodeID) {
	for _, pid := range pids {
		ids = append(ids, nodeID{pid: pid})
	}
	return ids
}

// wait adds edges from one node to others, if there is room.
func (b *graphBuilder) wait(id nodeID, wants string, ends []nodeID) {
	from := b.node(id)
	if from == nil {
		b.graph.More++
		return
	}
	if from.Wants == "" {
		from.Wants = wants
	}
	for _, end := range ends[:min(len(ends), maxFan)] {
		if to := b.node(end); to != nil {
			b.edge(from, to, false)
		}
	}
}
