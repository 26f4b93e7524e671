package lockwatch

import "slices"

// A step is a wait on a path.
type step struct {
	from int
	edge edge
}

// paths holds shortest paths from one node to others, and back to itself. Its size
// is that of what was reached: most nodes of a graph wait for little.
type paths struct{ arrivals []arrival } // the nearest first

// An arrival is a node with a path.
type arrival struct {
	last   step // the last one of its path
	before int  // the arrival where last begins; -1: at the start
}

// paths returns the paths from start to the nodes in within; nil stands for all. It
// stops as soon as it has reached stop, which is its last arrival then. With -1 it
// goes on to the end.
func (g *waitGraph) paths(start, stop int, within []bool) *paths {
	p := new(paths)
	if g.reached == nil {
		g.reached = make([]bool, len(g.nodes))
	}
	defer func() {
		for _, a := range p.arrivals {
			g.reached[a.last.edge.to] = false
		}
	}()
	for at, from := -1, start; ; from = p.arrivals[at].last.edge.to {
		for _, e := range g.edges[from] {
			if g.reached[e.to] || within != nil && !within[e.to] {
				continue
			}
			g.reached[e.to] = true
			p.arrivals = append(p.arrivals, arrival{step{from, e}, at})
			if e.to == stop {
				return p
			}
		}
		if at++; at == len(p.arrivals) {
			return p
		}
	}
}

// to returns the steps from the start to an arrival, at least one.
func (p *paths) to(i int) (path []step) {
	for ; i >= 0; i = p.arrivals[i].before {
		path = append(path, p.arrivals[i].last)
	}
	slices.Reverse(path)
	return path
}

// toStop returns the steps to the last arrival.
func (p *paths) toStop() []step { return p.to(len(p.arrivals) - 1) }
