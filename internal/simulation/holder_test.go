package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A simHeld is a lock that a caller has.
type simHeld struct {
	lock    *sqllock.Lock
	session *sqllock.Session
	conn    *simSession
	done    <-chan struct{} // of the work's context
	number  simNumber

	seenLost bool // by an earlier check
}

// told reports whether the work's context has ended, without asking the lock.
func (h *simHeld) told() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// closed reports whether s has been closed, or is about to be.
func (w *simWorld) closed(s *sqllock.Session) bool { return !slices.Contains(w.sessions(), s) }

// enter notes a grant. The lock is on the connection of the client that was the
// last to take the key.
func (w *simWorld) enter(client int, s *sqllock.Session, lock *sqllock.Lock, asked []sqllock.Key) *simHeld {
	h := &simHeld{lock: lock, session: s, done: lock.Context().Done()}
	others := slices.DeleteFunc(slices.Clone(asked), func(k sqllock.Key) bool { return k == lock.Key() })
	w.leave(others, simUnclear) // one of them may be taken by a statement under way, and given back
	link := w.client(client).link
	w.mu.Lock()
	h.conn = w.last[simLast{simID(lock.Key()), link}]
	w.mu.Unlock()
	if h.conn == nil {
		w.wrong("a lock is granted that the server has not given", "")
		h.conn = &simSession{link: link}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted++
	h.number = simNumber{w.taken[simTake{simID(lock.Key()), h.conn}], w.granted}
	w.live[h] = true
	w.figures["locks"]++
	return h
}

// work is what a holder does.
func (c simCall) work(w *simWorld, h *simHeld) {
	if c.Token == simTokenFirst {
		w.draw(h)
	}
	w.rest(c.Hold)
	if err := h.lock.Err(); err != nil && w.harmless && !w.closed(h.session) {
		w.wrong("a lock is lost without a fault", err.Error())
	}
	if c.Token == simTokenLast {
		w.spawn(func() { w.draw(h) })
		w.rest(w.plan.Latency/2 + 1) // it is under way, or in line
	}
}

// draw draws h's token.
func (w *simWorld) draw(h *simHeld) {
	began := simNow()
	token, err := h.lock.Token(background)
	w.within("token", began, answerBound)
	if err == nil {
		w.noteToken(h, token)
	}
}

// exit notes that h is about to be given back.
func (w *simWorld) exit(h *simHeld) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, h)
}

// gone judges the error of h's Unlock, and notes that it is done: if there is no
// error, and that can be relied on, the key is free.
func (w *simWorld) gone(h *simHeld, err error, relied bool) {
	switch {
	case err == nil:
	case w.harmless && !w.closed(h.session):
		w.wrong("an Unlock fails without a fault", err.Error())
	case !errors.Is(err, sqllock.ErrLost) && !errors.Is(err, sqllock.ErrUnavailable):
		w.wrong("an error without a reason", "Unlock: "+err.Error())
	default:
		w.mu.Lock()
		w.figures["losses told by Unlock"]++
		w.mu.Unlock()
	}
	how := simUnclear
	if err == nil && relied {
		how = simFreed
	}
	w.leave([]sqllock.Key{h.lock.Key()}, how)
}

// unlockBound is how long an Unlock may take. One that meets a Close waits for its end.
func (w *simWorld) unlockBound(s *sqllock.Session) time.Duration {
	if w.closed(s) {
		return answerBound + closeBound
	}
	return answerBound
}
