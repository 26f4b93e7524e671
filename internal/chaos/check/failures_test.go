package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// loseSession ends a process' session: its holders learn of it before the server
// frees their locks.
func (s *simulation) loseSession(victim int) {
	for _, w := range s.workers {
		if w.process == victim && w.holding {
			w.lost = true
		}
	}
}

// kill ends a process: its calls in flight leave no line, and its locks no end.
func (s *simulation) kill(victim int) {
	fault := history.Fault{Row: kill, Name: "kill", Process: victim, Begin: s.now, End: s.now + 100*ms}
	s.events = append(s.events, history.Event{Fault: &fault})
	for _, w := range s.workers {
		if w.process != victim {
			continue
		}
		switch key := int(w.try.Key); {
		case w.hold != nil:
			s.abandon(key, w.hold.Lock, 2000*ms)
		case w.try.Result == history.OK && w.try.End == 0: // granted, and nobody knows
			s.abandon(key, w.try.Lock, 700*ms)
		case w.try.End == 0 && s.owners[key] == 0:
			s.abandon(key, s.take(key), 700*ms)
		}
		w.hold, w.holding, w.try = nil, false, history.Try{End: s.now}
		s.plan(w, 300*ms, func() { s.begin(w) })
	}
}
