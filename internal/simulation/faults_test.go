package simulation

import "time"

// statementFaults happen to the next statements of a client.
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

// A partition cuts a client off from the server.
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

// A kill makes the server end the sessions of a client.
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

// A restart ends all sessions. For a while the server rejects connections.
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

// A suspend freezes the machine of a client. Its monotonic clock stands still,
// and its boot clock goes on. All clients share one monotonic clock, so no time
// passes for the others. Instead the server counts the sessions of this client as
// silent for that time.
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
			ran := min(e.For, max(s.busy-at, 0)) // a statement under way goes on meanwhile
			s.busy -= ran
			s.idle -= w.server.paceLocked(e.For)
		}
	}
	l.asleep.Add(int64(e.For))
	l.woke = at
	w.server.mu.Unlock()
	w.check() // at the very moment of waking up, before any timer fires
}

// A clockStep sets the server's clock. It sets it forward at most once in a
// lease, which is what the promise allows for.
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

// A quiet is a time without a new call. It is what lets an idle Session close its
// connection. Only the callers that hold or wait go on.
type quiet struct{ For time.Duration }

func (e quiet) happen(w *world) {
	w.advance(e.For)
	for _, s := range w.sessions() {
		if s.Stats().IdleClosed {
			w.count("closed while idle")
		}
	}
}

// A reopen closes a client's Session and opens another, as a process does that
// restarts.
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
