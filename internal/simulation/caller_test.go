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
	Keys    []int         // of contendedKeys; only TryAny, LockAny and TryEach use more than the first
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
	opTryEach
)

var operationNames = [...]string{"TryLock", "Lock", "TryAny", "LockAny", "Do", "TryEach"}

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
	keys := c.keys(w)
	arrived, began := w.arrive(keys), now()
	if c.Op == opDo {
		c.do(ctx, w, s, keys, arrived)
		return
	}
	lock, unlock, err := c.acquire(ctx, w, s, keys)
	c.timely(w, began)
	if err != nil {
		c.denied(w, s, keys, arrived, began, err)
		return
	}
	h := w.enter(c.Client, s, lock, keys)
	c.work(w, h)
	began = now()
	w.exit(h)
	err = unlock()
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
func (c call) keys(w *world) (keys []sqllock.Key) {
	for _, k := range c.Keys {
		if key := w.key(c.Client, k); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	switch c.Op {
	case opTryAny, opLockAny:
		return keys
	case opTryEach:
		keys = slices.DeleteFunc(keys, func(key sqllock.Key) bool { return dialectKey(key).Space != dialect.Bigint })
		if len(keys) == 0 {
			keys = append(keys, w.key(c.Client, 0))
		}
		return keys
	}
	return keys[:1]
}

// acquire makes the call by the method of a Session. It returns the lock, and
// how to give it back.
func (c call) acquire(ctx context.Context, w *world, s *sqllock.Session, keys []sqllock.Key) (lock *sqllock.Lock, unlock func() error, err error) {
	switch c.Op {
	case opLock:
		lock, err = s.Lock(ctx, keys[0])
	case opTryAny:
		lock, err = s.TryAny(ctx, keys...)
	case opLockAny:
		lock, err = s.LockAny(ctx, keys...)
	case opTryEach:
		return c.acquireEach(ctx, w, s, keys)
	default:
		lock, err = s.TryLock(ctx, keys[0])
	}
	return lock, lock.Unlock, err
}

// acquireEach acquires one of keys and two keys that no other call wants: one
// before it, and one of many.
func (c call) acquireEach(ctx context.Context, w *world, s *sqllock.Session, keys []sqllock.Key) (*sqllock.Lock, func() error, error) {
	own := w.ownKeys()
	locks, err := s.TryEach(ctx, [][]sqllock.Key{own[:1], keys, own[1:]})
	var full *sqllock.GroupError
	if errors.As(err, &full) {
		if full.Group != 1 {
			w.wrong("a key that no other call wants is held", "")
		}
		err = sqllock.ErrHeld
	}
	if err != nil {
		return nil, nil, err
	}
	return locks[1], locks.Unlock, nil
}

// timely checks how long the call took to get or to be denied its lock. A call
// that only tries may need a second statement if the key is being requested when
// it comes. A call for several keys may need one more for each.
func (c call) timely(w *world, began time.Duration) {
	bound := time.Duration(len(c.keys(w))+1) * responseBound
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
	case errors.Is(err, sqllock.ErrNotExclusive) && w.plan.TwoSecrets:
	case ended && w.harmless && w.ctx.Err() == nil && c.Op.waits() && w.waitsForFree(keys):
		w.wrong("a caller waits for a key that no other has", fmt.Sprint(c.Op, " ", c.Keys))
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
