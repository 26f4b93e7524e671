package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A call is a call for a lock and what its caller does with the lock.
type call struct {
	Client  int
	Op      operation
	Keys    []int         // of contendedKeys; some operations use only the first
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
	opTryRead
	opRead
	opTryAll
	opLockAll
	opTryEach
)

var operationNames = [...]string{"TryLock", "Lock", "TryAny", "LockAny", "Do", "TryRLock", "RLock", "TryLockAll", "LockAll", "TryEach"}

func (o operation) String() string { return operationNames[o] }
func (o operation) reads() bool    { return o == opTryRead || o == opRead }
func (o operation) takesAll() bool { return o == opTryAll || o == opLockAll }

func (o operation) waits() bool {
	return o == opLock || o == opLockAny || o == opRead || o == opLockAll
}

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
	arrived, began := w.arrive(keys, c.Op.reads()), now()
	w.countCall(s)
	if c.Op == opDo {
		c.do(ctx, w, s, keys, arrived)
		return
	}
	locks, err := c.acquire(ctx, s, keys)
	c.timely(w, began)
	if err != nil {
		c.denied(w, s, keys, arrived, began, err)
		return
	}
	holders := w.enter(c, s, locks, keys)
	c.work(w, holders)
	began = now()
	w.exit(holders)
	err = locks.Unlock()
	w.within("Unlock", began, w.unlockBound(s))
	w.gone(holders, err, true)
}

// do makes the call by sqllock.Do.
func (c call) do(ctx context.Context, w *world, s *sqllock.Session, keys []sqllock.Key, arrived int) {
	var holders []*holder
	began := now()
	err := sqllock.Do(ctx, s, keys[0], func(ctx context.Context) error {
		c.timely(w, began)
		lock, _ := sqllock.FromContext(ctx)
		holders = w.enter(c, s, sqllock.Locks{lock}, keys)
		c.work(w, holders)
		w.exit(holders)
		return nil
	})
	if holders == nil {
		c.timely(w, began)
		c.denied(w, s, keys, arrived, began, err)
		return
	}
	w.gone(holders, err, w.harmless) // Do does not report that the database was away at the end
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

// keys returns the keys that the call is for, each once. TryEach takes no pair,
// and sometimes many keys.
func (c call) keys() (keys []sqllock.Key) {
	for _, k := range c.Keys {
		key := contendedKeys[k]
		if _, _, pair := key.Pair(); pair && c.Op == opTryEach {
			key = contendedKeys[0]
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	switch c.Op {
	case opTryEach:
		if len(keys) > 2 {
			keys = append(keys, wideKeys...)
		}
		return keys
	case opTryAny, opLockAny, opTryAll, opLockAll:
		return keys
	default:
		return keys[:1]
	}
}

// acquire makes the call by the method of a Session.
func (c call) acquire(ctx context.Context, s *sqllock.Session, keys []sqllock.Key) (sqllock.Locks, error) {
	switch c.Op {
	case opLock:
		return one(s.Lock(ctx, keys[0]))
	case opTryAny:
		return one(s.TryAny(ctx, keys...))
	case opLockAny:
		return one(s.LockAny(ctx, keys...))
	case opTryRead:
		return one(s.TryRLock(ctx, keys[0]))
	case opRead:
		return one(s.RLock(ctx, keys[0]))
	case opTryAll:
		return s.TryLockAll(ctx, keys...)
	case opLockAll:
		return s.LockAll(ctx, keys...)
	case opTryEach:
		return lockertest.TryEach(ctx, s, groups(keys))
	default:
		return one(s.TryLock(ctx, keys[0]))
	}
}

// one returns the result of a call for one lock as that of a call for several.
func one(lock *sqllock.Lock, err error) (sqllock.Locks, error) {
	if err != nil {
		return nil, err
	}
	return sqllock.Locks{lock}, nil
}

// groups returns keys in groups for TryEach: the first alone, and the others.
func groups(keys []sqllock.Key) [][]sqllock.Key {
	if len(keys) == 1 {
		return [][]sqllock.Key{keys}
	}
	return [][]sqllock.Key{keys[:1], keys[1:]}
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
	var (
		failure *dialect.Failure
		full    *inside.FullError
	)
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case err == sqllock.ErrHeld && c.Op.waits():
		w.wrong("a waiter is denied", "")
	case err == sqllock.ErrHeld && !w.plan.Async:
		w.judgeDenial(c, keys, arrived, began)
		return
	case err == sqllock.ErrHeld:
	case ended, errors.As(err, &failure):
	case errors.As(err, &full) && c.Op == opTryEach:
	case errors.Is(err, sqllock.ErrClosed) && w.closed(s):
	case errors.Is(err, sqllock.ErrUnavailable) && !w.harmless:
	default:
		w.wrong("an error without a reason", fmt.Sprint(c.Op, ": ", err))
	}
	if err == sqllock.ErrHeld {
		w.leave(keys, c.Op.reads(), leftDenied)
	} else {
		w.leave(keys, c.Op.reads(), leftUnclear)
	}
}
