package lockwatch

import "slices"

// components returns the strongly connected components of the graph that have an
// edge. Each cycle is within one of them. The time is linear in the edges
// (Tarjan's algorithm), because a Snapshot mostly has many waits and no cycle.
func (g *waitGraph) components() [][]int {
	t := tarjan{graph: g, order: make([]int, len(g.nodes)), low: make([]int, len(g.nodes)), open: make([]bool, len(g.nodes))}
	for i := range g.nodes {
		if t.order[i] == 0 {
			t.visit(i)
		}
	}
	return t.components
}

// isOneCycle reports whether each node of a component has one way on within it. Then the
// component is one cycle. within has its nodes.
func (g *waitGraph) isOneCycle(component []int, within []bool) bool {
	for _, n := range component {
		next := -1
		for _, e := range g.edges[n] {
			switch {
			case !within[e.to] || e.to == next:
			case next >= 0:
				return false
			default:
				next = e.to
			}
		}
	}
	return true
}

// A tarjan is one run of Tarjan's algorithm.
//
// Invariant: stack holds the nodes that were visited and whose component is not
// complete, in the order of their visits.
type tarjan struct {
	graph      *waitGraph
	next       int
	order      []int // by node: the number of its visit; 0: not visited
	low        []int // by node: the lowest number on the stack that it reaches
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

// close takes the component of i off the stack. All of it was reached from i. self
// says that i waits for itself.
func (t *tarjan) close(i int, self bool) {
	at := slices.Index(t.stack, i)
	component := slices.Clone(t.stack[at:])
	t.stack = t.stack[:at]
	for _, n := range component {
		t.open[n] = false
	}
	if len(component) > 1 || self {
		slices.Sort(component)
		t.components = append(t.components, component)
	}
}
