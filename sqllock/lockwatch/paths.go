package lockwatch

import "slices"

// components is the sets of nodes each of whom waits, by whatever way, for each of the others: all rings are
// within one. It takes time in proportion to the edges (Tarjan's algorithm), as almost always nobody is in a ring.
func (g *waitGraph) components() [][]int {
	t := tarjan{graph: g, order: make([]int, len(g.nodes)), low: make([]int, len(g.nodes)), open: make([]bool, len(g.nodes))}
	for i := range g.nodes {
		if t.order[i] == 0 {
			t.visit(i)
		}
	}
	return t.components
}

type tarjan struct {
	graph      *waitGraph
	next       int
	order, low []int // by node: when it was reached, 0: not yet; the earliest that it reaches back to
	stack      []int
	open       []bool // by node: on the stack
	components [][]int
}

func (t *tarjan) visit(i int) {
	t.next++
	t.order[i], t.low[i], t.open[i] = t.next, t.next, true
	t.stack = append(t.stack, i)
	self := false
	for _, e := range t.graph.edges[i] {
		switch {
		case t.order[e.to] == 0:
			t.visit(e.to)
			t.low[i] = min(t.low[i], t.low[e.to])
		case t.open[e.to]:
			t.low[i] = min(t.low[i], t.order[e.to])
			self = self || e.to == i
		}
	}
	if t.low[i] == t.order[i] {
		t.close(i, self)
	}
}

// close takes the component of i, which all of it was reached from, off the stack.
func (t *tarjan) close(i int, self bool) {
	at := slices.Index(t.stack, i)
	component := slices.Clone(t.stack[at:])
	t.stack = t.stack[:at]
	for _, p := range component {
		t.open[p] = false
	}
	if len(component) > 1 || self {
		slices.Sort(component)
		t.components = append(t.components, component)
	}
}

// A step is a wait on the way to somebody.
type step struct {
	from int
	edge edge
}

// paths is the last steps of shortest ways from one node to the others, and back to itself.
type paths struct {
	start   int
	last    []step // by node; from is -1: not reached
	reached []int
}

// paths finds them among the nodes that are in within; nil is all. It stops at stop; -1 is never.
func (g *waitGraph) paths(start, stop int, within []bool) *paths {
	p := &paths{start: start, last: make([]step, len(g.nodes))}
	for i := range p.last {
		p.last[i].from = -1
	}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.edges[queue[0]] {
			if p.last[e.to].from >= 0 || within != nil && !within[e.to] {
				continue
			}
			p.last[e.to] = step{queue[0], e}
			p.reached = append(p.reached, e.to)
			if e.to == stop {
				return p
			}
			queue = append(queue, e.to)
		}
	}
	return p
}

// to is the steps from the start to end, at least one; nil if there is no way.
func (p *paths) to(end int) (way []step) {
	for at := end; ; {
		s := p.last[at]
		if s.from < 0 {
			return nil
		}
		way = append(way, s)
		if at = s.from; at == p.start {
			slices.Reverse(way)
			return way
		}
	}
}
