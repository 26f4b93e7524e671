package check

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

const (
	ms   = history.Moment(time.Millisecond)
	kill = 1 // row of the fault table

	processes = 4
)

// A simulation is a lock service with its callers, in virtual time. Sessions are
// lost, processes are killed, answers do not come.
type simulation struct {
	rng    *rand.Rand
	now    history.Moment
	events []history.Event

	owners  []int64 // by key; 0: free
	locks   int64
	workers []*worker
	orphans []orphan
	loss    history.Moment // when the next session is lost
	death   history.Moment // when the next process is killed
}

// An orphan is a lock that nobody will give back: the server frees it when due.
type orphan struct {
	key int
	id  int64
	due history.Moment
}

// A worker takes keys and gives them back, one at a time.
type worker struct {
	process int
	next    func() // what it does when due
	due     history.Moment

	try     history.Try
	hold    *history.Hold // while it holds a lock
	lost    bool          // it does not know yet
	holding bool          // neither asking nor unlocking
}

// simulate is the history of a small fleet over about so many calls.
func simulate(seed uint64, calls int) []history.Event {
	const workers, keys = 12, 6
	s := &simulation{rng: rand.New(rand.NewPCG(seed, 0)), owners: make([]int64, keys)}
	for i := range workers {
		w := &worker{process: 1 + i%processes}
		s.workers = append(s.workers, w)
		s.plan(w, 100*ms, func() { s.begin(w) })
	}
	s.loss, s.death = s.after(1000*ms), s.after(20_000*ms)
	for range 4 * calls {
		s.step()
	}
	for i := range processes { // calls in flight leave no line
		s.kill(1 + i)
	}
	return s.events
}

func (s *simulation) after(most history.Moment) history.Moment {
	return s.now + 1 + history.Moment(s.rng.Int64N(int64(most)))
}

func (s *simulation) plan(w *worker, most history.Moment, next func()) {
	w.due, w.next = s.after(most), next
}

func (s *simulation) chance(p float64) bool { return s.rng.Float64() < p }

// step does what is due next.
func (s *simulation) step() {
	w := slices.MinFunc(s.workers, func(a, b *worker) int { return int(a.due - b.due) })
	s.now = w.due
	s.orphans = slices.DeleteFunc(s.orphans, func(o orphan) bool {
		if o.due <= s.now && s.owners[o.key] == o.id {
			s.owners[o.key] = 0
		}
		return o.due <= s.now
	})
	if s.now >= s.loss {
		s.loss = s.after(1000 * ms)
		s.loseSession(1 + s.rng.IntN(processes))
	}
	if s.now >= s.death {
		s.death = s.after(20_000 * ms)
		s.kill(1 + s.rng.IntN(processes))
	}
	if w.due == s.now {
		w.next()
	}
}

func (s *simulation) abandon(key int, id int64, most history.Moment) {
	s.orphans = append(s.orphans, orphan{key, id, s.after(most)})
}

// Calls.

func (s *simulation) begin(w *worker) {
	w.try = history.Try{Process: w.process, Key: int64(s.rng.IntN(len(s.owners))), Waits: s.chance(0.03), Begin: s.now}
	s.plan(w, 100*ms, func() { s.answer(w) })
}

// answer is the moment at which the server sees the call.
func (s *simulation) answer(w *worker) {
	key := int(w.try.Key)
	isFree := s.owners[key] == 0
	switch {
	case s.chance(0.02):
		if isFree && s.chance(0.5) {
			s.abandon(key, s.take(key), 700*ms)
		}
		results := []history.Result{history.Unavailable, history.GaveUp, history.Capacity}
		w.try.Result = results[s.rng.IntN(len(results))]
	case !isFree:
		if w.try.Waits {
			s.plan(w, 50*ms, func() { s.answer(w) })
			return
		}
		w.try.Result = history.Held
	default:
		w.try.Result, w.try.Lock = history.OK, s.take(key)
	}
	s.plan(w, 100*ms, func() { s.end(w) })
}

func (s *simulation) take(key int) int64 {
	s.locks++
	s.owners[key] = s.locks
	return s.locks
}

func (s *simulation) end(w *worker) {
	w.try.End = s.now
	try := w.try
	s.events = append(s.events, history.Event{Try: &try})
	if try.Result != history.OK {
		s.plan(w, 300*ms, func() { s.begin(w) })
		return
	}
	w.hold = &history.Hold{Process: w.process, Key: try.Key, Lock: try.Lock, From: s.now, Valid: s.now}
	w.holding, w.lost = true, false
	s.write(w)
	s.plan(w, 200*ms, func() { s.work(w) })
}

func (s *simulation) write(w *worker) {
	hold := *w.hold
	s.events = append(s.events, history.Event{Hold: &hold})
}

func (s *simulation) work(w *worker) {
	switch {
	case w.lost:
		s.countNotification(w)
	case s.chance(0.6):
		w.hold.Valid = s.now
		s.plan(w, 200*ms, func() { s.work(w) })
	default:
		w.hold.UnlockBegin, w.holding = s.now, false
		s.plan(w, 50*ms, func() { s.free(w) })
	}
}

// tell ends a lock that was lost: the server may free it from now on.
func (s *simulation) countNotification(w *worker) {
	w.hold.Told, w.hold.UnlockBegin = s.now, s.now
	w.hold.Ended, w.hold.Unlock = s.now, history.Lost
	s.abandon(int(w.hold.Key), w.hold.Lock, 2000*ms)
	s.finish(w)
}

// free is the moment at which the server sees the Unlock.
func (s *simulation) free(w *worker) {
	key := int(w.hold.Key)
	w.hold.Unlock = history.OK
	switch {
	case s.chance(0.02):
		w.hold.Unlock = history.Unavailable
		s.abandon(key, w.hold.Lock, 2000*ms)
	case s.owners[key] == w.hold.Lock:
		s.owners[key] = 0
	}
	s.plan(w, 50*ms, func() { w.hold.Ended = s.now; s.finish(w) })
}

func (s *simulation) finish(w *worker) {
	s.write(w)
	w.hold, w.holding = nil, false
	s.plan(w, 100*ms, func() { s.begin(w) })
}
