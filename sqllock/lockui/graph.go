package lockui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const maxNodes = 40 // of a drawing; the tables have the rest

// The sizes of a drawing, in its own units.
const (
	nodeWidth  = 340
	nodeHeight = 76
	columnGap  = 70
	rowGap     = 26
	margin     = 30 // on the sides, with room for an arrow that goes back
	top        = 6
)

// A drawing shows waits. An arrow goes from a node that waits to one that it waits
// for. Deadlocks have dashed arrows, a double frame and a number.
type drawing struct {
	Width, Height int
	Nodes         []*drawnNode
	Edges         []drawnEdge
	More          int    // waits that are not drawn
	Text          string // what the drawing shows, for readers who do not see it
}

type drawnNode struct {
	lockwatch.Node
	X, Y int
	rank int // the longest way to a node that waits for nothing
}

type drawnEdge struct {
	Path  string // of an SVG path
	Cycle bool
}

// Title says who the node is: a lock's holder, or a process.
func (n *drawnNode) Title() string {
	switch {
	case n.Label != "":
		return "holder of " + n.Label
	case n.PID != 0:
		return "process " + strconv.Itoa(n.PID)
	case n.Session != "":
		return "callers of " + n.Session
	}
	return "prepared transaction"
}

// Where says on which process the holder of a lock is, and where its client is.
func (n *drawnNode) Where() string {
	text := n.Details()
	if n.Label != "" && n.PID != 0 {
		text = strings.TrimSuffix("process "+strconv.Itoa(n.PID)+", "+text, ", ")
	}
	return text
}

// cut returns as much of text as a node has room for.
func cut(text string, length int) string {
	if utf8.RuneCountInString(text) <= length {
		return text
	}
	return string([]rune(text)[:length-1]) + "…"
}

// draw gives the waits of v their places. A column has the nodes of one rank. The
// rightmost column has those that wait for nothing, so arrows go to the right. Only
// an arrow that closes a cycle goes back.
func draw(v *lockwatch.View) drawing {
	nodes, more := v.Graph(maxNodes)
	d := drawing{More: more}
	for _, n := range nodes {
		d.Nodes = append(d.Nodes, &drawnNode{Node: n})
	}
	d.Text = fmt.Sprintf("A drawing of %s and %s. The table below has the same in words.",
		counted(len(d.Nodes), "holder or waiter", "holders and waiters"), counted(len(v.Cycles), "cycle", "cycles"))
	visits := make(map[*drawnNode]visit)
	ranks, most := 0, 0
	for _, n := range d.Nodes {
		d.rank(n, visits)
		ranks = max(ranks, n.rank+1)
	}
	inOrder := slices.Clone(d.Nodes)
	slices.SortStableFunc(inOrder, func(a, b *drawnNode) int { return cmp.Compare(order(a), order(b)) })
	rows := make([]int, ranks)
	for _, n := range inOrder {
		n.X = margin + (ranks-1-n.rank)*(nodeWidth+columnGap)
		n.Y = top + rows[n.rank]*(nodeHeight+rowGap)
		rows[n.rank]++
		most = max(most, rows[n.rank])
	}
	d.Width = 2*margin + ranks*nodeWidth + max(ranks-1, 0)*columnGap
	d.Height = top + most*(nodeHeight+rowGap)
	for _, from := range d.Nodes {
		for i, to := range from.Arrows {
			d.Edges = append(d.Edges, drawnEdge{path(from, d.Nodes[to]), from.Cycle > 0 && i == 0})
		}
	}
	return d
}

// order puts the nodes of cycles above the others.
func order(n *drawnNode) int {
	if n.Cycle == 0 {
		return maxNodes + 1
	}
	return n.Cycle
}

// A visit says how far rank is with a node.
type visit int

const (
	notVisited visit = iota
	onTheWay
	visited
)

// rank sets the rank of n and of the nodes that it waits for. A node that is on the
// way already does not count: that arrow closes a cycle.
func (d *drawing) rank(n *drawnNode, visits map[*drawnNode]visit) {
	if visits[n] != notVisited {
		return
	}
	visits[n] = onTheWay
	for _, at := range n.Arrows {
		to := d.Nodes[at]
		d.rank(to, visits)
		if visits[to] == visited {
			n.rank = max(n.rank, to.rank+1)
		}
	}
	visits[n] = visited
}

// path returns the line of an arrow. Forward it goes from side to side. Back it goes
// below the row of its start, and then up or down on the left of its end, so that it
// crosses no node.
func path(from, to *drawnNode) string {
	if from.X < to.X {
		x1, y1, x2, y2 := from.X+nodeWidth, from.Y+nodeHeight/2, to.X, to.Y+nodeHeight/2
		return fmt.Sprintf("M%d,%d C%d,%d %d,%d %d,%d", x1, y1, x1+columnGap/2, y1, x2-columnGap/2, y2, x2-4, y2)
	}
	return fmt.Sprintf("M%d,%d V%d H%d V%d H%d", from.X+nodeWidth/2, from.Y+nodeHeight, from.Y+nodeHeight+rowGap/2, to.X-22, to.Y+nodeHeight/2+12, to.X-2)
}
