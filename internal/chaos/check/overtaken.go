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
// that wait for a key are served in the order of their arrival. Calls for
// several keys are left out: they have a place in several lines, or in none.
// So are those of a time of trouble, in which a process may connect anew.
func (s *sweep) overtaken(r *record, lines map[int64]int) {
	inLine := map[int][]history.Try{} // by process, by Begin
	for _, t := range r.tries {
		if t.Waits && t.Limit == 0 && t.All == 0 && (t.Call == 0 || lines[t.Call] == 1) {
			inLine[t.Process] = append(inLine[t.Process], t)
		}
	}
	for _, all := range inLine {
		for i, t := range all {
			if t.Result != history.GaveUp || t.End-t.Begin <= ahead || s.trouble.touch(t.Begin, t.End) {
				continue
			}
			s.report.Waits++
			n := 0
			for _, u := range all[i+1:] {
				if u.Begin >= t.End {
					break
				}
				if u.Begin > t.Begin+ahead && u.End < t.End && u.Result == history.OK {
					n++
				}
			}
			if n >= passedOver {
				s.report.Overtaken = append(s.report.Overtaken, Overtaken{t.Process, r.key, t.Begin, n})
			}
		}
	}
}
