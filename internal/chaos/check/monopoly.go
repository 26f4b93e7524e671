package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// inexplicable is how often others must be refused a free key before it counts as
// leaked to one process. A few times it happens, beside calls that give up.
const inexplicable = 20

// A monopoly is a time in which all grants of a key go to one process, while
// others are refused although nobody holds it. If a session has the key once more
// than its process knows, that process is granted it again and again, and nobody
// else is.
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

// refused takes notice of t, which was refused although the first n locks of r
// had ended and no other was on its way.
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
