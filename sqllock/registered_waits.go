package sqllock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// What a Session with a registry is told of waits: which of its callers wait for
// what, and what they hold.

// wait returns what a call wants that waits with this ctx. oneOf says that it is
// for one of several keys.
func (s *Session) wait(ctx context.Context, oneOf bool) keytable.Want {
	w := keytable.Want{Waits: true}
	if s.session.Registers() {
		w.Info = s.heldBy(ctx, oneOf)
	}
	return w
}

// note notes a wait for all of keys, until the func that it returns is called.
func (s *Session) note(ctx context.Context, keys []Key) (end func()) {
	w := s.heldBy(ctx, false)
	ids := make([]keytable.ID, len(keys))
	for i, k := range keys {
		ids[i] = k.id()
	}
	s.session.Note(w, ids...)
	return func() { s.session.Forget(w) }
}

// heldBy returns a wait that begins now, with the locks that ctx carries.
//
// A lock of another Session may be in another database, where its key means
// something else. So may one of a ConnLocker or TxLocker: the statement that
// writes the registry checks that the server process has it in this database.
func (s *Session) heldBy(ctx context.Context, oneOf bool) *session.Wait {
	w := &session.Wait{Since: session.Now(), Any: oneOf}
	for c := carrier(ctx); c != nil; c = carrier(c.parent) {
		l, pid := c.lock, int64(0)
		if l.home.session != s.session {
			if pid = l.serverProcess(); pid == 0 {
				continue
			}
		}
		noteHolding(w, l, pid)
	}
	return w
}

// noteHolding notes that the caller of w holds l, which the server process pid
// has. Readers' locks of one key count once.
func noteHolding(w *session.Wait, l *Lock, pid int64) {
	same := func(h session.HeldLock) bool { return h.ID == l.hold.ID() && h.PID == pid }
	if l.hold.Ended() == keytable.NotEnded && !slices.ContainsFunc(w.Holding, same) {
		w.Holding = append(w.Holding, session.HeldLock{Hold: &l.hold, ID: l.hold.ID(), PID: pid})
	}
}

// serverProcess returns the server process that has l, if l is of a ConnLocker
// or TxLocker and the process is known. Otherwise it returns 0.
func (l *Lock) serverProcess() int64 {
	if l.home.pid == nil {
		return 0
	}
	return l.home.pid(l)
}

// A distantWait is a wait for a key at a ConnLocker, at a TxLocker or in LockTx.
// Its caller holds locks of a Session with a registry, which writes the wait
// down as if it were its own.
//
// The key may be of another database. So the wait is noted only once a
// connection of the waiting side has seen the server process of the Session's
// locks. Only waits that last for half a heartbeat look for it.
type distantWait struct {
	session *session.Session
	process dialect.Process // which has the Session's locks
	wait    *session.Wait
	id      keytable.ID
	timer   *time.Timer

	mu    sync.Mutex // protects ended
	ended bool
}

// noteDistantWaits notes waits for key, until endWaits. After half a heartbeat
// it calls look in a goroutine for each. look calls noted if the Session's
// server process is in the same database.
func noteDistantWaits(ctx context.Context, key Key, look func(*distantWait)) []*distantWait {
	waits := distantWaits(ctx, key)
	for _, w := range waits {
		w.timer = time.AfterFunc(w.session.NoteAfter(), func() { look(w) })
	}
	return waits
}

// distantWaits returns a wait for key, which begins now, for each Session with a
// registry whose locks ctx carries.
func distantWaits(ctx context.Context, key Key) (waits []*distantWait) {
	for c := carrier(ctx); c != nil; c = carrier(c.parent) {
		s := c.lock.home.session
		if s == nil || !s.Registers() || c.lock.hold.Ended() != keytable.NotEnded {
			continue
		}
		i := slices.IndexFunc(waits, func(w *distantWait) bool { return w.session == s })
		if i < 0 {
			process := s.ProcessOf(&c.lock.hold)
			if process.PID == 0 {
				continue // a pooler is between
			}
			i = len(waits)
			waits = append(waits, &distantWait{session: s, process: process, id: key.id(), wait: &session.Wait{Since: session.Now()}})
		}
		noteHolding(waits[i].wait, c.lock, 0)
	}
	return waits
}

// lasts reports whether the wait has not ended.
func (w *distantWait) lasts() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.ended
}

// noted lets the Session write the wait down, unless it has ended.
func (w *distantWait) noted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.session.Note(w.wait, w.id)
	}
}

// endWaits ends waits for the registry. A second call does nothing.
func endWaits(waits []*distantWait) {
	for _, w := range waits {
		if w.timer != nil {
			w.timer.Stop()
		}
		w.mu.Lock()
		w.ended = true
		w.session.Forget(w.wait)
		w.mu.Unlock()
	}
}
