package lockui

import (
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

type waitsView struct {
	Database databaseView `json:"database"`
	Total    int          `json:"total"` // waits, of which Waiters has at most 200
	Waiters  []waitRow    `json:"waiters"`
	Cycles   []cycleView  `json:"cycles"`
	Graph    graph        `json:"-"`
}

// A cycleView is a deadlock.
type cycleView struct {
	Text         string   `json:"text"`
	Steps        []string `json:"steps"`
	Certain      bool     `json:"certain"`
	EndsByItself bool     `json:"ends_by_itself"`
}

// waits shows the waits as a drawing, and the same as a table.
func (h *Handler) waits(s *state, _ int) any {
	v := waitsView{Database: s.database(), Waiters: []waitRow{}, Cycles: []cycleView{}}
	if s.snapshot == nil {
		return v
	}
	v.Total = len(s.snapshot.Waiters) + len(s.snapshot.Blocked)
	for i := range s.snapshot.Waiters[:min(len(s.snapshot.Waiters), maxRows)] {
		v.Waiters = append(v.Waiters, h.waitRow(&s.snapshot.Waiters[i], s.snapshot.At))
	}
	for i := range s.snapshot.Blocked[:min(len(s.snapshot.Blocked), maxRows-len(v.Waiters))] {
		v.Waiters = append(v.Waiters, h.blockedRow(&s.snapshot.Blocked[i]))
	}
	for _, c := range s.cycles[:min(len(s.cycles), maxRows)] {
		v.Cycles = append(v.Cycles, cycleOf(c))
	}
	v.Graph = drawGraph(s.snapshot, s.cycles)
	return v
}

// More returns how many waits are not in Waiters.
func (v waitsView) More() int { return v.Total - len(v.Waiters) }

func cycleOf(c lockwatch.Cycle) cycleView {
	v := cycleView{Text: c.String(), Certain: c.Certain, EndsByItself: c.EndsByItself}
	for _, w := range c.Waits {
		v.Steps = append(v.Steps, w.String())
	}
	return v
}
