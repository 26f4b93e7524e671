package lockwatch

import "slices"

// A step is a wait on a path.
type step struct {
	from int
	edge edge
}

// paths holds shortest paths from one node to others, and back to itself. Its size
// is that of what was reached: most nodes of a graph wait for little.
type paths struct {
	start   int
	last    map[int]step // by node: the last step of its path
	reached []int        // nodes with a path, the nearest first
}

// paths returns the paths from start to the nodes in within; nil stands for all. It
// stops as soon as it has reached stop; with -1 it goes on to the end.
func (g *waitGraph) paths(start, stop int, within []bool) *paths {
	p := &paths{start: start, last: make(map[int]step)}
	for queue := []int{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range g.edges[queue[0]] {
			if _, known := p.last[e.to]; known || within != nil && !within[e.to] {
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

// to returns the steps from the start to end, at least one. It returns nil if there
// is no path.
func (p *paths) to(end int) (path []step) {
	for at := end; ; {
		s, ok := p.last[at]
		if !ok {
			return nil
		}
		path = append(path, s)
		if at = s.from; at == p.start {
			slices.Reverse(path)
			return path
		}
	}
}
