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
// before it has ended. [AcquireAll] applies several limits at once, such as those
// per user, per tenant and in total. A [Limiter] is the policy. Its locks are
// those of package sqllock. Packages httpmw and grpcmw put it in front of a
// server.
package ratelimit

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Limiter admits a number of requests at a time for each id. It is made
// by [OneAtATime] or [AtMost], has nothing to close, and is safe for concurrent
// use. Limiters of one namespace share their limit, in this process and others.
// Each has [Stats] of its own.
//
// A Limiter rejects at once, unless there is [WithWait]. It fails closed,
// unless there is [WithFailOpen]: it rejects a request if it cannot find out
// whether the id is free.
type Limiter struct {
	locks sqllock.Locker
	any   anyLocker  // locks, if it can acquire one of several keys in one call; otherwise nil
	each  eachLocker // locks, if it can acquire a key of each of several groups in one call; otherwise nil
	home  any        // locks, or the Limiter if locks cannot be compared: where its lines belong to
	ns    sqllock.Namespace
	keys  keyMaker
	slots int // the highest limit of an id

	lastSlots atomic.Pointer[idSlots]

	heldFor    heldForLocker // locks, if it knows how long others have held a key; otherwise nil
	maxWait    time.Duration // 0 to reject at once
	maxWaiters int           // of each flow
	waiters    atomic.Int64  // requests that wait now
	maxHold    time.Duration
	maxIDLen   int
	failOpen   bool
	dryRun     bool
	observers  []Observer
	retryAfter func(learnt time.Duration) time.Duration // nil for the learnt time

	limitOf     func(ctx context.Context, id string) int // nil: slots
	classOf     func(ctx context.Context) string         // nil: there are no classes
	classes     []*class
	classByName map[string]*class

	holds   holds
	decided [numResults]atomic.Uint64 // decisions but Admitted, by result; holds counts the others
	queued  *histogram.Histogram      // of the requests that waited: how long
}

// OneAtATime returns a Limiter that admits one request at a time for each id.
// ns separates its ids from those of other limiters. It may be in logs and in
// responses to clients.
//
// OneAtATime panics if locks is nil, or ns is empty or holds ':' or '#'.
func OneAtATime(locks sqllock.Locker, ns sqllock.Namespace, opts ...Option) *Limiter {
	return newLimiter("OneAtATime", 1, locks, ns, opts)
}

// AtMost returns a Limiter that admits n requests at a time for each id. Each
// of the n is a slot with a key of its own: ns.SlotKey(id, i). Slot 0 is
// ns.Key(id). So the old holder counts while a fleet changes from OneAtATime to
// AtMost.
//
// A [sqllock.Session] tries the slots of an id in one round trip for all callers
// that want one. A shard.Locker needs one round trip for each database, until one
// grants. A Locker without TryAny needs one for each slot that is held. n should
// be small: before a rejection each of the n keys was tried.
//
// AtMost panics like OneAtATime, and if n is not positive.
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
	l := &Limiter{locks: locks, ns: ns, keys: ns, slots: n, maxIDLen: defaultMaxIDLen, queued: histogram.New(histogram.Seconds)}
	l.holds.lengths = histogram.New(histogram.Seconds)
	l.any, _ = locks.(anyLocker)
	l.home = l
	if reflect.ValueOf(locks).Comparable() {
		l.home = locks
		l.each, _ = locks.(eachLocker) // levels of one Locker are found by ==
	}
	l.heldFor, _ = locks.(heldForLocker)
	for _, opt := range opts {
		opt(l)
	}
	return l
}

// isNilPointer reports whether locks is a nil pointer, such as the
// *sqllock.Session of an Open whose error was ignored.
func isNilPointer(locks sqllock.Locker) bool {
	v := reflect.ValueOf(locks)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Namespace returns the namespace of l.
func (l *Limiter) Namespace() sqllock.Namespace { return l.ns }

// Limit returns how many requests l admits at a time for each id. With
// [WithLimit] an id may have less.
func (l *Limiter) Limit() int { return l.slots }

// Acquire admits a request for id, or rejects it with an error:
//
//   - A [*BusyError], which matches [ErrBusy]: as many requests as the limit
//     allows hold id. If waiting is allowed, the wait was without success.
//   - [ErrBadID] or [ErrPolicy]: the database was not asked.
//   - The error of ctx, if ctx ended first.
//   - [sqllock.ErrUnavailable], [sqllock.ErrCapacity],
//     [sqllock.ErrNotExclusive], [sqllock.ErrConfig] or [sqllock.ErrClosed]:
//     whether id is free is unknown.
//
// The caller must Unlock the lock when the request ends. ctx bounds the call,
// not the lock. The lock's own context ([sqllock.Lock.Context]) has the values
// of ctx. With [WithFailOpen] and [WithDryRun] a request may be admitted with a
// nil lock, whose methods are safe. No error holds id.
func (l *Limiter) Acquire(ctx context.Context, id string) (*sqllock.Lock, error) {
	if l.limitOf != nil || l.classOf != nil {
		return l.acquireByPolicy(ctx, id)
	}
	p := place{l: l, limit: l.slots}
	if err := l.checkID(id); err != nil {
		return nil, p.reject(ctx, err)
	}
	p.slots = l.slotKeys(id)
	p.number = p.slots.first.Int64()
	lock, err := l.tryUnlessAwaited(ctx, &p)
	switch {
	case err == nil:
		p.lock = lock
		l.admit(ctx, &p)
		return lock, nil
	case !errors.Is(err, sqllock.ErrHeld):
		err = l.explain(err)
	case l.maxWait > 0 && !l.dryRun:
		return l.acquireFull(ctx, p)
	default:
		err = p.busy()
	}
	if p.pass(ctx, err) {
		p.count(ctx, p.instead, err)
		return nil, nil
	}
	return nil, p.reject(ctx, err)
}

// tryUnlessAwaited tries for p, unless other requests of this process wait.
func (l *Limiter) tryUnlessAwaited(ctx context.Context, p *place) (*sqllock.Lock, error) {
	if waits.Load() > 0 && p.mayTry().none() {
		return nil, sqllock.ErrHeld
	}
	return l.try(ctx, p.slots)
}

// acquireByPolicy is Acquire with WithLimit or WithClasses.
func (l *Limiter) acquireByPolicy(ctx context.Context, id string) (*sqllock.Lock, error) {
	s := stack{places: make([]place, 1)}
	p := &s.places[0]
	var err error
	if *p, err = l.newPlace(ctx, id); err != nil {
		return nil, p.reject(ctx, err)
	}
	err = s.acquire(ctx, nil)
	return p.lock, err
}

// acquireFull is the rest of Acquire for a place that has been found full.
func (l *Limiter) acquireFull(ctx context.Context, p place) (*sqllock.Lock, error) {
	s := stack{places: []place{p}}
	err := s.acquire(ctx, &s.places[0])
	return s.places[0].lock, err
}

// Refuse is for a middleware that rejects a request before it has an id to
// Acquire. It counts the rejection, reports err to the Observers and returns
// err. In a dry run it returns nil: the request is admitted. ctx is that of the
// request.
func (l *Limiter) Refuse(ctx context.Context, err error) error {
	p := place{l: l, limit: l.slots}
	return p.reject(ctx, err)
}

// Carried reports whether ctx carries a lock of this limit for id that is still
// held. A request with such a context has a place already, for example from a
// middleware around. An Acquire under ctx needs another place. With
// [OneAtATime] there is none, however long the request waits.
//
// Limiters of one namespace share their limit, so each reports the locks of the
// others. Locks are compared by their keys: a lock of the same namespace counts
// even if it is from another Locker. A lock of a dry run is not carried.
// Carried needs no query.
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
