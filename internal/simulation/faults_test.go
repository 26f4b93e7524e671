package simulation

import "time"

// simMishaps befall the next statements of a client.
type simMishaps struct {
	Client int
	Fates  []simFate
}

func (e simMishaps) happen(w *simWorld) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	l := w.client(e.Client).link
	l.fates = append(l.fates, e.Fates...)
}

// simCut partitions a client from the server.
type simCut struct {
	Client int
	For    time.Duration
}

func (e simCut) happen(w *simWorld) {
	w.count("partitions")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	l := w.client(e.Client).link
	l.cut = max(l.cut, simNow()+e.For)
}

// simKill has the server end the sessions of a client.
type simKill struct{ Client int }

func (e simKill) happen(w *simWorld) {
	w.count("kills")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.catchUpLocked()
	for s := range w.server.sessions {
		if s.link == w.client(e.Client).link {
			w.server.killLocked(s)
		}
	}
}

// simRestart ends all sessions, and for some time there is no server.
type simRestart struct{ Down time.Duration }

func (e simRestart) happen(w *simWorld) {
	w.count("restarts")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.catchUpLocked()
	for s := range w.server.sessions {
		w.server.killLocked(s)
	}
	w.server.down = max(w.server.down, simNow()+e.Down)
}

// simSuspend freezes a client, with its machine: its monotonic clock stands still,
// that of its boot goes on. For the others no time passes meanwhile; instead
// the server's clock jumps, for this client's sessions only.
type simSuspend struct {
	Client int
	For    time.Duration
}

func (e simSuspend) happen(w *simWorld) {
	w.count("suspends")
	l := w.client(e.Client).link
	w.server.mu.Lock()
	at := simNow()
	for s := range w.server.sessions {
		if s.link == l {
			ran := min(e.For, max(s.busy-at, 0)) // what it carries out goes on meanwhile
			s.busy -= ran
			s.idle -= w.server.paceLocked(e.For)
		}
	}
	l.asleep.Add(int64(e.For))
	l.woke = at
	w.server.mu.Unlock()
	w.check() // at the very moment of waking up, before any timer fires
}

// simClockStep sets the server's clock, forward once in a lease at the most.
type simClockStep struct{ By time.Duration }

func (e simClockStep) happen(w *simWorld) {
	f := w.server
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked()
	at := simNow()
	if e.By > 0 {
		if f.forward != 0 && at-f.forward <= simLease+simLease/100 {
			return
		}
		f.forward = at
	}
	w.count("clock steps")
	f.stepped += e.By
	for s := range f.sessions {
		if at < s.busy { // its silence has not begun
			s.idle += e.By
		}
	}
}

// simReopen closes a client's Session and opens another: the process restarts.
type simReopen struct {
	Client int
	Pause  time.Duration
}

func (e simReopen) happen(w *simWorld) {
	c := w.client(e.Client)
	s := w.retire(c)
	if s == nil {
		return
	}
	w.count("reopens")
	w.spawn(func() {
		began := simNow()
		_ = s.Close()
		w.within("Close", began, closeBound)
		w.rest(e.Pause)
		for !w.open(c) {
			w.rest(100 * time.Millisecond)
		}
	})
}
