package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A holder is a lock that a caller has.
type holder struct {
	lock    *sqllock.Lock
	session *sqllock.Session
	conn    *session
	done    <-chan struct{} // of the work's context
	number  grantNumber

	seenLost bool // by an earlier check
}

// told reports whether the work's context has ended, without asking the lock.
func (h *holder) told() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// closed reports whether s has been closed, or is about to be.
func (w *world) closed(s *sqllock.Session) bool { return !slices.Contains(w.sessions(), s) }

// enter notes a grant. The lock is on the connection of the client that was the
// last to take the key.
func (w *world) enter(client int, s *sqllock.Session, lock *sqllock.Lock, asked []sqllock.Key) *holder {
	h := &holder{lock: lock, session: s, done: lock.Context().Done()}
	others := slices.DeleteFunc(slices.Clone(asked), func(k sqllock.Key) bool { return k == lock.Key() })
	w.leave(others, leftUnclear) // one of them may be taken by a statement under way, and given back
	link := w.client(client).link
	w.mu.Lock()
	h.conn = w.last[clientKey{dialectKey(lock.Key()), link}]
	w.mu.Unlock()
	if h.conn == nil {
		w.wrong("a lock is granted that the server has not given", "")
		h.conn = &session{link: link}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted++
	h.number = grantNumber{w.taken[serverGrant{dialectKey(lock.Key()), h.conn}], w.granted}
	w.live[h] = true
	w.figures["locks"]++
	return h
}

// work is what a holder does.
func (c call) work(w *world, h *holder) {
	if c.Token == tokenFirst {
		w.draw(h)
	}
	w.rest(c.Hold)
	if err := h.lock.Err(); err != nil && w.harmless && !w.closed(h.session) {
		w.wrong("a lock is lost without a fault", err.Error())
	}
	if c.Token == tokenLast {
		w.spawn(func() { w.draw(h) })
		w.rest(w.plan.Latency/2 + 1) // it is under way, or in line
	}
}

// draw draws h's token.
func (w *world) draw(h *holder) {
	began := now()
	token, err := h.lock.Token(background)
	w.within("token", began, responseBound)
	if err == nil {
		w.noteToken(h, token)
	}
}

// exit notes that h is about to be given back.
func (w *world) exit(h *holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, h)
}

// gone judges the error of h's Unlock, and notes that it is done: if there is no
// error, and that can be relied on, the key is free.
func (w *world) gone(h *holder, err error, relied bool) {
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
	how := leftUnclear
	if err == nil && relied {
		how = leftFree
	}
	w.leave([]sqllock.Key{h.lock.Key()}, how)
}

// unlockBound is how long an Unlock may take. One that meets a Close waits for its end.
func (w *world) unlockBound(s *sqllock.Session) time.Duration {
	if w.closed(s) {
		return responseBound + closeBound
	}
	return responseBound
}
