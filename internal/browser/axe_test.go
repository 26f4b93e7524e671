package browser_test

import (
	"fmt"
	"strings"
)

// A violation is a rule of axe-core that the page breaks.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

func (v violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s", v.ID, v.Impact, v.Help)
	for _, n := range v.Nodes {
		fmt.Fprintf(&b, "\n\t%s\n\t%s", shortened(n.HTML), strings.ReplaceAll(n.FailureSummary, "\n", "\n\t"))
	}
	return b.String()
}

// violations returns what axe-core, with all of its rules that are on by default,
// finds on the page as it is now.
func (p *tab) violations() []violation {
	p.t.Helper()
	if !evaluate[bool](p, "typeof axe === 'object'") {
		evaluate[bool](p, needPrograms(p.t).axe+"\n;true")
	}
	return evaluate[[]violation](p, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({
		ID: v.id, Impact: v.impact, Help: v.help,
		Nodes: v.nodes.slice(0, 5).map(n => ({HTML: n.html, FailureSummary: n.failureSummary})),
	})))`)
}
