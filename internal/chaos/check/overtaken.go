package check

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An Overtaken is a request that waited until its deadline, while later ones of
// its process were served.
type Overtaken struct {
	Process int
	Key     int64
	Begin   history.Moment
	By      int // requests
}

// passedOver is how many later requests must have been served before it is a
// violation. Whether a request had begun to wait before another is certain only
// if ahead lies between them.
const (
	passedOver = 3
	ahead      = history.Moment(50 * time.Millisecond)
)

// overtaken finds requests of r that were passed over. The requests of a process
// that wait for a key are served in the order of their arrival, and those that
// only try do not overtake them. Readers join readers, so that they overtake
// none.
//
// Requests that wait for several keys have a place in several lines, or in none.
// So they are not looked for. Nor are those of a time of trouble, in which a
// process may connect anew.
func (s *sweep) overtaken(r *record, lines map[int64]int) {
	of := map[int][]history.Try{} // by process, by Begin
	for _, t := range r.tries {
		if t.Limit == 0 {
			of[t.Process] = append(of[t.Process], t)
		}
	}
	for _, all := range of {
		for i, t := range all {
			inLine := t.Waits && t.All == 0 && (t.Call == 0 || lines[t.Call] == 1)
			if !inLine || t.Result != history.GaveUp || t.End-t.Begin <= ahead || s.trouble.touch(t.Begin, t.End) {
				continue
			}
			s.report.Waits++
			if n := passes(t, all[i+1:]); n >= passedOver {
				s.report.Overtaken = append(s.report.Overtaken, Overtaken{t.Process, r.key, t.Begin, n})
			}
		}
	}
}

// passes returns how many of later, which are sorted, were served while t
// waited.
func passes(t history.Try, later []history.Try) (n int) {
	for _, u := range later {
		if u.Begin >= t.End {
			break
		}
		readers := t.Kind == history.Reader && u.Kind == history.Reader
		if !readers && u.Begin > t.Begin+ahead && u.End < t.End && u.Result == history.OK {
			n++
		}
	}
	return n
}
