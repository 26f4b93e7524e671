package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// What a Session with a registry knows of waits: which of its callers wait for
// what, and what they hold.

// noteWait notes for the registry since when r waits, and which locks its
// caller holds. Those are the locks that its context carries. table.mu is not
// held, because a context may be of any type.
//
// A lock of another Session may be in another database, where its key means
// something else. So may one of a ConnLocker or TxLocker: the statement that
// writes the registry checks that the server process has it in this database.
func (t *keyTable) noteWait(r *request) {
	if !t.registers {
		return
	}
	r.since = now()
	for c := carrier(r.ctx); c != nil; c = carrier(c.parent) {
		l := c.lock
		pid, known := int64(0), l.home == home(t)
		if !known {
			pid = serverProcess(l)
			known = pid != 0
		}
		if known {
			r.noteHolding(l, pid)
		}
	}
}

// noteHolding notes that the caller of r holds l, which the server process pid
// has. Readers' locks of one key count once.
func (r *request) noteHolding(l *Lock, pid int64) {
	same := func(h heldLock) bool { return h.lock.key.id() == l.key.id() && h.pid == pid }
	if l.ended.Load() == endNot && !slices.ContainsFunc(r.holding, same) {
		r.holding = append(r.holding, heldLock{l, pid})
	}
}

// serverProcess returns the server process that has l, if l is of a ConnLocker
// or TxLocker and the process is known. Otherwise it returns 0.
func serverProcess(l *Lock) int64 {
	if t, ok := l.home.(*keyTable); ok {
		if s, ok := t.source.(interface{ serverProcess(l *Lock) int64 }); ok {
			return s.serverProcess(l)
		}
	}
	return 0
}

// waitingKeys counts the waiting callers, by the key and by what they hold.
type waitingKeys map[waitingKey]*postgres.WaitingKey

type waitingKey struct {
	key, holding dialect.Key
	holds        bool
	pid          int64 // that of heldLock: the same key may be held in several databases
}

// addWaiter adds r, which waits for key. It leaves out locks that have ended
// since the wait began. For a request for any of several keys it leaves out
// what the caller holds, since key may not be the one that it gets.
func (ws waitingKeys) addWaiter(key dialect.Key, r *request, at time.Duration) {
	one := len(r.keys) == 1 || r.all
	holds := false
	for _, h := range r.holding {
		if one && h.lock.ended.Load() == endNot {
			ws.count(waitingKey{key, h.lock.key.id(), true, h.pid}, r, at)
			holds = true
		}
	}
	if !holds {
		ws.count(waitingKey{key: key}, r, at)
	}
}

func (ws waitingKeys) count(k waitingKey, r *request, at time.Duration) {
	w := ws[k]
	if w == nil {
		w = &postgres.WaitingKey{Key: k.key, Holding: k.holding, Holds: k.holds, HoldingPID: k.pid}
		ws[k] = w
	}
	w.Waiters++
	w.Age = max(w.Age, at-r.since)
}

// A distantWait is a wait for a key at a ConnLocker, at a TxLocker or in LockTx.
// Its caller holds locks of a Session with a registry, which writes the wait
// down as if it were its own.
//
// The key may be of another database. So the wait is noted only once a
// connection of the waiting side has seen the server process of the Session's
// locks. Only waits that last for half a heartbeat look for it.
type distantWait struct {
	session *keyTable
	process dialect.Process // which has the Session's locks
	request *request        // what the Session writes down
	timer   *time.Timer
	ended   bool // protected by session.mu
}

// noteDistantWaits notes waits for key, until endWaits. After half a heartbeat
// it calls look in a goroutine for each. look calls noted if the Session's
// server process is in the same database.
func noteDistantWaits(ctx context.Context, key Key, look func(*distantWait)) []*distantWait {
	waits := distantWaits(ctx, key)
	for _, w := range waits {
		w.timer = time.AfterFunc(w.session.noteAfter, func() { look(w) })
	}
	return waits
}

// endWaits ends waits for the registry. A second call does nothing.
func endWaits(waits []*distantWait) {
	for _, w := range waits {
		if w.timer != nil {
			w.timer.Stop()
		}
		w.end()
	}
}

// distantWaits returns a wait for key, which begins now, for each Session with a
// registry whose locks ctx carries.
func distantWaits(ctx context.Context, key Key) (waits []*distantWait) {
	for c := carrier(ctx); c != nil; c = carrier(c.parent) {
		t, _ := c.lock.home.(*keyTable)
		conn, _ := c.lock.life.(*connection)
		if t == nil || !t.registers || conn == nil || c.lock.ended.Load() != endNot {
			continue
		}
		i := slices.IndexFunc(waits, func(w *distantWait) bool { return w.session == t })
		if i < 0 {
			server, _ := conn.session.(dialect.Terminator)
			if server == nil || server.Process().PID == 0 {
				continue // a pooler is between
			}
			i = len(waits)
			waits = append(waits, &distantWait{
				session: t, process: server.Process(),
				request: &request{want: want{waits: true}, keys: []Key{key}, since: now()},
			})
		}
		waits[i].request.noteHolding(c.lock, 0)
	}
	return waits
}

// lasts reports whether the wait has not ended.
func (w *distantWait) lasts() bool {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	return !w.ended
}

// noted lets the Session write the wait down, unless it has ended.
func (w *distantWait) noted() {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	if !w.ended {
		w.session.waitingSets[w.request] = struct{}{}
	}
}

// end ends the wait for the registry.
func (w *distantWait) end() {
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.ended = true
	delete(w.session.waitingSets, w.request)
}
