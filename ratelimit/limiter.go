// Package ratelimit admits a limited number of requests at a time per user or
// resource, across every instance of a service:
//
//	exports := ratelimit.OneAtATime(session, "export")
//
//	lock, err := exports.Acquire(ctx, userID)
//	if err != nil {
//		return err // errors.Is(err, ratelimit.ErrBusy): this user's last export still runs, here or elsewhere
//	}
//	defer lock.Unlock()
//
// It limits concurrency, not rate: a request is admitted as soon as the one
// before it has ended. A [Limiter] is the policy, the locks under it are
// package sqllock's; packages httpmw and grpcmw put it in front of a server.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Limiter admits a fixed number of requests at a time for each id. It is made
// by [OneAtATime] or [AtMost], has nothing to close, and is safe for concurrent
// use. Limiters of one namespace share their limit, in this process and others.
//
// It refuses at once (but see [WithWait]) and fails closed: what could not be
// shown to be free is refused (but see [WithFailOpen]).
type Limiter struct {
	locks sqllock.Locker
	any   anyLocker // locks, if it can take one of several keys in one call; else nil
	ns    sqllock.Namespace
	keys  keyMaker
	slots int

	maxWait    time.Duration // 0: refuse at once
	maxWaiters int64
	waiters    atomic.Int64 // requests that wait now
	maxHold    time.Duration
	maxIDLen   int
	failOpen   bool
	dryRun     bool
	observer   Observer
	retryAfter func(learnt time.Duration) time.Duration // nil: what was learnt
	holds      holds
}

// OneAtATime makes a Limiter that admits one request at a time for each id. ns
// keeps its ids apart from those of other limiters, and may stand in logs and
// in answers to clients.
//
// It panics if locks is nil, or ns is empty or holds ':' or '#'.
func OneAtATime(locks sqllock.Locker, ns sqllock.Namespace, opts ...Option) *Limiter {
	return newLimiter("OneAtATime", 1, locks, ns, opts)
}

// AtMost makes a Limiter that admits n requests at a time for each id. Each of
// the n is a slot, a key of its own: ns.SlotKey(id, i). Slot 0 is ns.Key(id), so
// that while a fleet goes from OneAtATime to AtMost, the old holder counts.
//
// A [sqllock.Session] tries all slots in one round trip, a shard.Locker in
// one for each database until one grants; a Locker without TryAny needs one for
// each slot that is taken. n is meant to be small: a refusal has looked at n
// keys.
//
// It panics as OneAtATime does, and if n is not positive.
func AtMost(n int, locks sqllock.Locker, ns sqllock.Namespace, opts ...Option) *Limiter {
	if n <= 0 {
		panic("ratelimit: AtMost needs a positive number of requests to admit")
	}
	return newLimiter("AtMost", n, locks, ns, opts)
}

func newLimiter(caller string, n int, locks sqllock.Locker, ns sqllock.Namespace, opts []Option) *Limiter {
	switch {
	case locks == nil, isNilPointer(locks):
		panic("ratelimit: " + caller + " needs a sqllock.Locker that is not nil")
	case ns == "":
		panic("ratelimit: " + caller + " needs a namespace that is not empty")
	case strings.ContainsAny(string(ns), ":#"):
		panic("ratelimit: " + caller + " needs a namespace that holds neither ':' nor '#'")
	}
	l := &Limiter{locks: locks, ns: ns, keys: ns, slots: n, maxIDLen: defaultMaxIDLen}
	l.any, _ = locks.(anyLocker)
	for _, opt := range opts {
		opt(l)
	}
	return l
}

// isNilPointer reports whether locks is, say, the *sqllock.Session of an Open
// whose error was ignored.
func isNilPointer(locks sqllock.Locker) bool {
	v := reflect.ValueOf(locks)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Namespace is the namespace that l was made with.
func (l *Limiter) Namespace() sqllock.Namespace { return l.ns }

// Limit is how many requests l admits at a time for each id.
func (l *Limiter) Limit() int { return l.slots }

// Acquire admits a request for id, or refuses it with an error:
//
//   - a [*BusyError], which matches [ErrBusy]: as many requests as the limit
//     allows hold id, and waiting, if that is allowed, was in vain;
//   - [ErrBadID]: nothing was asked of the database;
//   - ctx's error, if ctx ended first;
//   - [sqllock.ErrUnavailable], [sqllock.ErrCapacity],
//     [sqllock.ErrNotExclusive], [sqllock.ErrConfig] or [sqllock.ErrClosed]: it cannot be told now.
//
// The caller must Unlock the lock when the request ends. ctx bounds the call,
// not the lock; the lock's own context ([sqllock.Lock.Context]) has ctx's
// values. With [WithFailOpen] and [WithDryRun] a request may be admitted with a
// nil lock, whose methods are safe. No error holds id.
func (l *Limiter) Acquire(ctx context.Context, id string) (*sqllock.Lock, error) {
	if err := l.checkID(id); err != nil {
		return nil, l.Refuse(err)
	}
	lock, waited, err := l.take(ctx, id)
	if err == nil {
		l.admit(lock, waited)
		return lock, nil
	}
	l.observer.waited(waited)
	if l.failOpen && ctx.Err() == nil && errors.Is(err, sqllock.ErrUnavailable) {
		l.observer.failedOpen(err)
		return nil, nil
	}
	return nil, l.Refuse(err)
}

// Carried reports whether ctx carries a lock of this limit for id that is still
// held. A request with such a context has a place already, for example from a
// middleware around it. An Acquire under ctx asks for another place. With
// [OneAtATime] there is none, however long the request waits.
//
// Limiters of one namespace share their limit, so each reports what the others
// hold. Locks are compared by their keys: one of the same namespace counts even
// if it is from another Locker. A lock of a dry run is not carried. Carried costs
// no query.
func (l *Limiter) Carried(ctx context.Context, id string) bool {
	if _, ok := sqllock.FromContext(ctx); !ok || l.checkID(id) != nil {
		return false
	}
	for _, key := range l.slotKeys(id).keys() { // a lock inside may have been given back
		if lock, ok := sqllock.FromContext(ctx, key); ok && lock.Err() == nil {
			return true
		}
	}
	return false
}

// Refuse is for what stands in front of l and refuses a request before there is
// an id to Acquire. It tells the Observer and returns err, or nil, to admit the
// request, in a dry run.
func (l *Limiter) Refuse(err error) error {
	l.observer.refused(err)
	if l.dryRun {
		return nil
	}
	return err
}

// take is Acquire without its policy on errors. waited is how long it waited
// for a busy id: 0 if it did not.
func (l *Limiter) take(ctx context.Context, id string) (lock *sqllock.Lock, waited time.Duration, err error) {
	keys := l.slotKeys(id)
	lock, err = l.try(ctx, keys)
	if !errors.Is(err, sqllock.ErrHeld) {
		return lock, 0, l.explain(err)
	}
	if l.maxWait == 0 || l.dryRun || !l.enterLine() {
		return nil, 0, l.busy()
	}
	defer l.leaveLine()
	waiting.Begin(ctx)
	began := time.Now()
	lock, err = l.wait(ctx, keys)
	return lock, max(time.Since(began), 1), err
}

// admit begins the hold of a lock just taken. The Observer hears of the
// admission first, as the lock may have ended already. A panic of the Observer
// gives the lock back: nobody else could.
func (l *Limiter) admit(lock *sqllock.Lock, waited time.Duration) {
	start := now()
	if l.dryRun {
		lock.DetachContexts() // no request may end with it
	}
	told := false
	defer func() {
		if !told {
			_ = lock.Unlock()
		}
	}()
	l.observer.waited(waited)
	l.observer.admitted()
	l.begin(lock, start)
	told = true
}

// explain says which limiter a locker's error comes from.
func (l *Limiter) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ratelimit: %s: %w", l.ns, err)
}
