package lockui

import (
	"cmp"
	"fmt"
	"slices"
)

// The sizes of a drawing, in its own units.
const (
	nodeWidth  = 264
	nodeHeight = 60
	columnGap  = 70
	rowGap     = 26
	margin     = 30 // on the sides, with room for an arrow that goes back
	top        = 6
)

// place gives nodes and edges their places. A column has the nodes of one rank. The
// rightmost column has those that wait for nothing, so arrows go to the right. Only
// an arrow that closes a cycle goes back.
func (g *graph) place() {
	visits := make(map[*graphNode]visit)
	ranks := 0
	for _, n := range g.Nodes {
		rankOf(n, visits)
		ranks = max(ranks, n.rank+1)
	}
	slices.SortStableFunc(g.Nodes, func(a, b *graphNode) int { return cmp.Compare(order(a), order(b)) })
	rows := make([]int, ranks)
	most := 0
	for _, n := range g.Nodes {
		n.X = margin + (ranks-1-n.rank)*(nodeWidth+columnGap)
		n.Y = top + rows[n.rank]*(nodeHeight+rowGap)
		rows[n.rank]++
		most = max(most, rows[n.rank])
	}
	g.Width = 2*margin + ranks*nodeWidth + max(ranks-1, 0)*columnGap
	g.Height = top + most*(nodeHeight+rowGap)
	for _, e := range g.Edges {
		e.Path = e.path()
	}
}

// order puts the nodes of cycles above the others.
func order(n *graphNode) int {
	if n.Cycle == 0 {
		return maxNodes + 1
	}
	return n.Cycle
}

// A visit says how far rankOf is with a node.
type visit int

const (
	notVisited visit = iota
	onTheWay
	visited
)

// rankOf sets the rank of n and of the nodes that it waits for. A node that is on
// the way already does not count: that edge closes a cycle.
func rankOf(n *graphNode, visits map[*graphNode]visit) {
	if visits[n] != notVisited {
		return
	}
	visits[n] = onTheWay
	for _, to := range n.out {
		rankOf(to, visits)
		if visits[to] == visited {
			n.rank = max(n.rank, to.rank+1)
		}
	}
	visits[n] = visited
}

// path returns the line of e. Forward it goes from side to side. Back it goes below
// the row of its start, and then up or down on the left of its end, so that it
// crosses no node.
func (e *graphEdge) path() string {
	from, to := e.from, e.to
	if from.X < to.X {
		x1, y1, x2, y2 := from.X+nodeWidth, from.Y+nodeHeight/2, to.X, to.Y+nodeHeight/2
		return fmt.Sprintf("M%d,%d C%d,%d %d,%d %d,%d", x1, y1, x1+columnGap/2, y1, x2-columnGap/2, y2, x2-4, y2)
	}
	return fmt.Sprintf("M%d,%d V%d H%d V%d H%d", from.X+nodeWidth/2, from.Y+nodeHeight, from.Y+nodeHeight+rowGap/2, to.X-22, to.Y+nodeHeight/2+12, to.X-2)
}
