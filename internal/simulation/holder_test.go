package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A holder is a caller that holds a lock.
type holder struct {
	lock    *sqllock.Lock
	session *sqllock.Session
	conn    *session        // which holds the key at the server
	done    <-chan struct{} // of the context of the work
	number  grantNumber

	seenLost bool // an earlier check found the lock lost
}

// told reports whether the context of the work has ended. It does not ask the
// lock, which would notice a loss only then.
func (h *holder) told() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// closed reports whether s is closed or about to be.
func (w *world) closed(s *sqllock.Session) bool { return !slices.Contains(w.sessions(), s) }

// enter notes that a call for the keys asked has got lock. The lock is on the
// connection of the client that was the last to take the key.
func (w *world) enter(client int, s *sqllock.Session, lock *sqllock.Lock, asked []sqllock.Key) *holder {
	h := &holder{lock: lock, session: s, done: lock.Context().Done()}
	others := slices.DeleteFunc(slices.Clone(asked), func(k sqllock.Key) bool { return k == lock.Key() })
	w.leave(others, leftUnclear) // a statement under way may take one of them, which is then given back
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

// work is what the caller does with its lock.
func (c call) work(w *world, h *holder) {
	if c.Token == tokenFirst {
		w.drawToken(h)
	}
	w.rest(c.Hold)
	if err := h.lock.Err(); err != nil && w.harmless && !w.closed(h.session) {
		w.wrong("a lock is lost without a fault", err.Error())
	}
	if c.Token == tokenLast {
		w.spawn(func() { w.drawToken(h) })
		w.rest(w.plan.Latency/2 + 1) // until the request for the token is under way or queued
	}
}

// drawToken asks for the token of h.
func (w *world) drawToken(h *holder) {
	began := now()
	token, err := h.lock.Token(background)
	w.within("token", began, responseBound)
	if err == nil {
		w.noteToken(h, token)
	}
}

// exit notes that the caller is about to give the lock back.
func (w *world) exit(h *holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, h)
}

// gone checks the error of the Unlock of h and notes its end. Without an error
// the key is free, if relied says that the error is reported.
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

// unlockBound returns how long an Unlock may take. An Unlock that meets a Close
// waits for the end of it.
func (w *world) unlockBound(s *sqllock.Session) time.Duration {
	const bound = 2 * responseBound
	if w.closed(s) {
		return bound + closeBound
	}
	return bound
}
