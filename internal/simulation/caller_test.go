package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A call is a call for a lock and what its caller does with the lock.
type call struct {
	Client  int
	Op      operation
	Keys    []int         // of contendedKeys; only TryAny and LockAny use more than the first
	Timeout time.Duration // 0: none for a call that only tries, maxWait for one that waits
	Hold    time.Duration // the length of the work
	Token   tokenTime
}

// An operation is the method that a call uses.
type operation int

const (
	opTry operation = iota
	opLock
	opTryAny
	opLockAny
	opDo
)

var operationNames = [...]string{"TryLock", "Lock", "TryAny", "LockAny", "Do"}

func (o operation) String() string { return operationNames[o] }
func (o operation) waits() bool    { return o == opLock || o == opLockAny }

// A tokenTime says when a holder asks for its token.
type tokenTime int

const (
	noToken    tokenTime = iota
	tokenFirst           // right after the grant
	tokenLast            // while Unlock is under way
)

// maxWait bounds calls that wait and have no timeout.
const maxWait = 6 * time.Second

func (c call) happen(w *world) {
	w.mu.Lock()
	s := w.client(c.Client).session
	w.mu.Unlock()
	if s != nil {
		w.count("calls")
		w.spawn(func() { c.make(w, s) })
	}
}

// make makes the call, does the work and gives the lock back. It checks what the
// caller sees.
func (c call) make(w *world, s *sqllock.Session) {
	ctx, cancel := c.context(w)
	defer cancel()
	keys := c.keys()
	arrived, began := w.arrive(keys), now()
	if c.Op == opDo {
		c.do(ctx, w, s, keys, arrived)
		return
	}
	lock, err := c.acquire(ctx, s, keys)
	c.timely(w, began)
	if err != nil {
		c.denied(w, s, keys, arrived, began, err)
		return
	}
	h := w.enter(c.Client, s, lock, keys)
	c.work(w, h)
	began = now()
	w.exit(h)
	err = lock.Unlock()
	w.within("Unlock", began, w.unlockBound(s))
	w.gone(h, err, true)
}

// do makes the call by sqllock.Do.
func (c call) do(ctx context.Context, w *world, s *sqllock.Session, keys []sqllock.Key, arrived int) {
	var h *holder
	began := now()
	err := sqllock.Do(ctx, s, keys[0], func(ctx context.Context) error {
		c.timely(w, began)
		lock, _ := sqllock.FromContext(ctx)
		h = w.enter(c.Client, s, lock, keys)
		c.work(w, h)
		w.exit(h)
		return nil
	})
	if h == nil {
		c.timely(w, began)
		c.denied(w, s, keys, arrived, began, err)
		return
	}
	w.gone(h, err, w.harmless) // Do does not report that the database was away at the end
}

// context returns the context of the call, which bounds how long it waits.
func (c call) context(w *world) (context.Context, context.CancelFunc) {
	switch {
	case c.Timeout > 0:
		return context.WithTimeout(w.ctx, c.Timeout)
	case c.Op.waits():
		return context.WithTimeout(w.ctx, maxWait)
	}
	return context.WithCancel(background)
}

// keys returns the keys that the call is for, each once.
func (c call) keys() (keys []sqllock.Key) {
	for _, k := range c.Keys {
		if key := contendedKeys[k]; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	if c.Op == opTryAny || c.Op == opLockAny {
		return keys
	}
	return keys[:1]
}

// acquire makes the call by the method of a Session.
func (c call) acquire(ctx context.Context, s *sqllock.Session, keys []sqllock.Key) (*sqllock.Lock, error) {
	switch c.Op {
	case opLock:
		return s.Lock(ctx, keys[0])
	case opTryAny:
		return s.TryAny(ctx, keys...)
	case opLockAny:
		return s.LockAny(ctx, keys...)
	default:
		return s.TryLock(ctx, keys[0])
	}
}

// timely checks how long the call took to get or to be denied its lock. A call
// that only tries may need a second statement if the key is being requested when
// it comes. A call for several keys may need one more for each.
func (c call) timely(w *world, began time.Duration) {
	bound := time.Duration(len(c.keys())+1) * responseBound
	if c.Op.waits() {
		bound = maxWait
	}
	if c.Timeout > 0 {
		bound = min(bound, c.Timeout)
	}
	w.within(c.Op.String(), began, bound)
}

// denied checks the error of a call that got no lock.
func (c call) denied(w *world, s *sqllock.Session, keys []sqllock.Key, arrived int, began time.Duration, err error) {
	var failure *dialect.Failure
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case err == sqllock.ErrHeld && c.Op.waits():
		w.wrong("a waiter is denied", "")
	case err == sqllock.ErrHeld && !w.plan.Async:
		w.judgeDenial(keys, arrived, began)
		return
	case err == sqllock.ErrHeld:
	case ended, errors.As(err, &failure):
	case errors.Is(err, sqllock.ErrClosed) && w.closed(s):
	case errors.Is(err, sqllock.ErrUnavailable) && !w.harmless:
	default:
		w.wrong("an error without a reason", fmt.Sprint(c.Op, ": ", err))
	}
	if err == sqllock.ErrHeld {
		w.leave(keys, leftDenied)
	} else {
		w.leave(keys, leftUnclear)
	}
}
