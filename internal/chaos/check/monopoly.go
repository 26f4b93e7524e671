package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// inexplicable is how often other processes must be refused a free key before
// it counts as leaked to one process. Calls that give up can cause a few such
// refusals.
const inexplicable = 20

// A monopoly is a time in which all grants of a key go to one process, while
// others are refused although no lock is held.
//
// It shows a session that holds the key once more than its process knows. That
// process is granted the key again and again, and no other is.
type monopoly struct {
	*sweep
	key      int64
	process  int // the last to be granted the key
	granted  int // how many locks of the key there were by then
	since    history.Moment
	before   int // how many there were then
	refusals int
	found    bool // it is the last of leaks
	leaks    []Leak
}

// refused counts t, a refusal after the first n locks of r had ended and while
// no other lock was on its way.
func (m *monopoly) refused(r *record, n int, t history.Try) {
	if n == 0 || t.Process == r.locks[n-1].Process {
		return
	}
	for ; m.granted < n; m.granted++ {
		if l := r.locks[m.granted]; l.Process != m.process {
			m.process, m.refusals, m.found = l.Process, 0, false
		}
	}
	if end := m.trouble.latest(m.since, t.End); m.refusals == 0 || end != 0 {
		m.since, m.before, m.refusals, m.found = max(t.Begin, end+1), n, 0, false
	}
	m.refusals++
	switch {
	case m.found:
		m.leaks[len(m.leaks)-1].Refusals++
	case m.refusals >= inexplicable && span(m.since, t.Begin) > m.free && n > m.before:
		m.found = true
		m.leaks = append(m.leaks, Leak{Key: m.key, Free: m.since, At: t.Begin, Refusals: m.refusals, Process: m.process})
	}
}
