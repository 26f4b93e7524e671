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
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Limiter admits a number of requests at a time for each id. It is made
// by [OneAtATime] or [AtMost], has nothing to close, and is safe for concurrent
// use. Limiters of one namespace share their limit, in this process and others.
// Each has [Stats] and a line of waiting requests of its own.
//
// A Limiter rejects at once, unless there is [WithWait]. It fails closed,
// unless there is [WithFailOpen]: it rejects a request if it cannot find out
// whether the id is free.
type Limiter struct {
	inner // for the middleware

	locks   sqllock.Locker
	any     anyLocker      // locks, if it can acquire one of several keys in one call; otherwise nil
	groups  *inside.Groups // of locks, if it can acquire a key of each of several groups in one call; otherwise nil
	heldFor heldForLocker  // locks, if it knows how long others have held a key; otherwise nil
	ns      sqllock.Namespace
	slotKey func(id string, i int) sqllock.Key // of ns, perhaps under a secret
	most    int                                // the highest limit of an id

	maxWait    time.Duration // 0 to reject at once
	maxWaiters int           // of each flow
	maxHold    time.Duration
	maxIDLen   int
	failOpen   bool
	dryRun     bool
	observers  []Observer
	retryAfter func(learnt time.Duration) time.Duration // nil for the learnt time

	limitOf func(ctx context.Context, id string) int // nil: most
	classOf func(ctx context.Context) string         // nil: there are no classes
	classes []Class

	kept   [keptIDs]atomic.Pointer[idSlots]
	lines  lines
	holds  *holds
	queued *histogram.Histogram // of the requests that waited: how long
}

// inner lets the middleware call [inside.Refuse], [inside.Carried] and
// [inside.AcquireAll], and the page [inside.FiguresOf].
type inner = inside.Limit

// OneAtATime returns a Limiter that admits one request at a time for each id.
// ns separates its ids from those of other limiters. It may be in logs and in
// responses to clients.
//
// OneAtATime panics if locks is nil, or ns is empty, is not UTF-8, or holds ':'
// or '#'.
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
// grants. A Locker without TryAny needs one for each slot that is held. A request
// of a class with reserved places tries those first, in a round trip of their
// own. n should be small: before a rejection each of the n keys was tried.
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
	case inside.IsNil(locks):
		panic("ratelimit: " + caller + " needs a sqllock.Locker that is not nil")
	case ns == "":
		panic("ratelimit: " + caller + " needs a namespace that is not empty")
	case strings.ContainsAny(string(ns), ":#"):
		panic("ratelimit: " + caller + " needs a namespace that holds neither ':' nor '#'")
	case !utf8.ValidString(string(ns)):
		panic("ratelimit: " + caller + " needs a namespace that is UTF-8")
	}
	l := &Limiter{
		locks: locks, groups: inside.GroupsOf(locks), ns: ns, slotKey: ns.SlotKey, most: n, maxIDLen: defaultMaxIDLen,
		lines:  lines{m: make(map[int64]*line)},
		holds:  newHolds(),
		queued: histogram.New(histogram.Seconds),
	}
	l.inner = inside.LimitBy(l.refuse, l.carried, l.figures, acquireAll)
	l.any, _ = locks.(anyLocker)
	l.heldFor, _ = locks.(heldForLocker)
	for _, opt := range opts {
		opt(l)
	}
	return l
}

// Namespace returns the namespace of l.
func (l *Limiter) Namespace() sqllock.Namespace { return l.ns }

// Limit returns how many requests l admits at a time for each id. With
// [WithLimit] an id may have less.
func (l *Limiter) Limit() int { return l.most }

// Acquire admits a request for id, or rejects it with an error:
//
//   - A [*BusyError], which matches [ErrBusy]: as many requests as the limit
//     allows hold id. If waiting is allowed, the wait was without success.
//   - [ErrBadID] or [ErrPolicy]: the id or a policy is wrong.
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
	s := newStack(1)
	if err := s.add(ctx, l, id); err != nil {
		return nil, err
	}
	err := s.acquire(ctx)
	return s.places[0].lock, err
}

// refuse is [inside.Refuse].
func (l *Limiter) refuse(ctx context.Context, err error) error {
	p := place{l: l, limit: l.most}
	return p.reject(ctx, err)
}

// carried is [inside.Carried].
func (l *Limiter) carried(ctx context.Context, id string) bool {
	if _, ok := sqllock.FromContext(ctx); !ok || l.checkID(id) != nil {
		return false
	}
	for _, key := range l.slotsOf(id) { // a lock inside may have been given back
		if lock, ok := sqllock.FromContext(ctx, key); ok && lock.Err() == nil {
			return true
		}
	}
	return false
}
