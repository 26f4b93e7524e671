package simulation

import "time"

// statementFaults befall the next statements of a client.
type statementFaults struct {
	Client int
	Faults []statementFault
}

func (e statementFaults) happen(w *world) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	l := w.client(e.Client).link
	l.faults = append(l.faults, e.Faults...)
}

// partition partitions a client from the server.
type partition struct {
	Client int
	For    time.Duration
}

func (e partition) happen(w *world) {
	w.count("partitions")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	l := w.client(e.Client).link
	l.cut = max(l.cut, now()+e.For)
}

// kill has the server end the sessions of a client.
type kill struct{ Client int }

func (e kill) happen(w *world) {
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

// restart ends all sessions, and for some time there is no server.
type restart struct{ Down time.Duration }

func (e restart) happen(w *world) {
	w.count("restarts")
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.catchUpLocked()
	for s := range w.server.sessions {
		w.server.killLocked(s)
	}
	w.server.down = max(w.server.down, now()+e.Down)
}

// suspend freezes a client, with its machine: its monotonic clock stands still,
// that of its boot goes on. For the others no time passes meanwhile; instead
// the server's clock jumps, for this client's sessions only.
type suspend struct {
	Client int
	For    time.Duration
}

func (e suspend) happen(w *world) {
	w.count("suspends")
	l := w.client(e.Client).link
	w.server.mu.Lock()
	at := now()
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

// clockStep sets the server's clock, forward once in a lease at the most.
type clockStep struct{ By time.Duration }

func (e clockStep) happen(w *world) {
	srv := w.server
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.catchUpLocked()
	at := now()
	if e.By > 0 {
		if srv.forward != 0 && at-srv.forward <= lease+lease/100 {
			return
		}
		srv.forward = at
	}
	w.count("clock steps")
	srv.stepped += e.By
	for s := range srv.sessions {
		if at < s.busy { // its silence has not begun
			s.idle += e.By
		}
	}
}

// reopen closes a client's Session and opens another: the process restarts.
type reopen struct {
	Client int
	Pause  time.Duration
}

func (e reopen) happen(w *world) {
	c := w.client(e.Client)
	s := w.retire(c)
	if s == nil {
		return
	}
	w.count("reopens")
	w.spawn(func() {
		began := now()
		_ = s.Close()
		w.within("Close", began, closeBound)
		w.rest(e.Pause)
		for !w.open(c) {
			w.rest(100 * time.Millisecond)
		}
	})
}
