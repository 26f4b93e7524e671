package simulation

import (
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A holder is a caller that holds a lock.
type holder struct {
	lock    *sqllock.Lock
	session *sqllock.Session
	key     dialect.Key     // as the server sees it, by its mode
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

// enter notes that a call for the keys asked has got locks. Each is on the
// connection of the client that was the last to take its key.
func (w *world) enter(c call, s *sqllock.Session, locks sqllock.Locks, asked []sqllock.Key) (holders []*holder) {
	others := slices.DeleteFunc(slices.Clone(asked), func(k sqllock.Key) bool {
		return slices.ContainsFunc(locks, func(l *sqllock.Lock) bool { return l.Key() == k })
	})
	w.leave(w.client(c.Client).link, others, c.Op.reads(), leftUnclear) // a statement under way may take one of them, which is then given back
	for _, lock := range locks {
		h := &holder{lock: lock, session: s, key: dialectKey(lock.Key()), done: lock.Context().Done()}
		if c.Op.reads() {
			h.key = h.key.Shared()
		}
		holders = append(holders, h)
		w.enterOne(w.client(c.Client).link, h)
	}
	return holders
}

func (w *world) enterOne(link *link, h *holder) {
	w.mu.Lock()
	h.conn = w.last[clientKey{h.key, link}]
	w.mu.Unlock()
	if h.conn == nil {
		w.wrong("a lock is granted that the server has not given", "")
		h.conn = &session{link: link}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted++
	h.number = grantNumber{w.taken[serverGrant{h.key, h.conn}], w.granted}
	w.live[h] = true
	w.figures["locks"]++
}

// work is what the caller does with its locks.
func (c call) work(w *world, holders []*holder) {
	first := holders[0]
	if c.Token == tokenFirst {
		w.drawToken(first)
	}
	w.rest(c.Hold)
	for _, h := range holders {
		if err := h.lock.Err(); err != nil && w.harmless && !w.closed(h.session) {
			w.wrong("a lock is lost without a fault", err.Error())
		}
	}
	if c.Token == tokenLast {
		w.spawn(func() { w.drawToken(first) })
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

// exit notes that the caller is about to give its locks back.
func (w *world) exit(holders []*holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range holders {
		delete(w.live, h)
	}
}

// gone checks the error of the Unlock of a call's locks and notes their end.
// Without an error the keys are free, if relied says that the error is reported.
func (w *world) gone(holders []*holder, err error, relied bool) {
	switch {
	case err == nil:
	case w.harmless && !w.closed(holders[0].session):
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
	for _, h := range holders {
		w.leave(h.conn.link, []sqllock.Key{h.lock.Key()}, h.key.IsShared(), how)
	}
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
