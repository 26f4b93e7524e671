package ratelimit

import (
	"bytes"
	"time"
)

// An Option changes the policy of a [Limiter]. Of two that set the same, the
// last one counts.
type Option func(*Limiter)

// WithWait lets a request wait up to maxWait for a busy id instead of being
// refused at once; at most waiters requests of this Limiter wait, over all ids,
// and the next is refused at once. Only requests that found their id busy wait
// and count: while the database is away, they are refused at once as ever.
// maxWait bounds the wait, never the work.
//
// Waiting requests of one process are served first come, first served, those of
// several processes in no order. Of an [AtMost] limiter over a Locker without
// LockAny (not a Session, shard.Locker or Memory), they try again from time to time,
// in no order either.
//
// It panics if maxWait or waiters is not positive.
func WithWait(maxWait time.Duration, waiters int) Option {
	if maxWait <= 0 || waiters <= 0 {
		panic("ratelimit: WithWait needs a positive duration and number of waiters")
	}
	return func(l *Limiter) { l.maxWait, l.maxWaiters = maxWait, int64(waiters) }
}

// WithRetryAfter sets what a refused client is told to wait. f is given what the
// Limiter has learnt: the larger of the mean length of holds that have ended, by
// which the latest counts for an eighth, and the mean age of those held now; at
// least a second, at most a minute, and a second before the first hold. Without
// the option that is what clients are told. A result that is not positive counts
// as a second. f must be quick and safe for concurrent use.
//
// It panics if f is nil.
func WithRetryAfter(f func(learnt time.Duration) time.Duration) Option {
	if f == nil {
		panic("ratelimit: WithRetryAfter needs a func that is not nil")
	}
	return func(l *Limiter) { l.retryAfter = f }
}

// WithFailOpen admits requests without a lock while the database is away: for a
// limit that protects comfort, not correctness. Acquire then returns a nil
// lock, whose Err is [sqllock.ErrUnavailable], and Observer.FailedOpen is
// called.
//
// Only sqllock.ErrUnavailable is failed open. ErrCapacity is not: a flood of ids
// must not switch the limiter off. Nor are ErrNotExclusive and ErrConfig, which no
// waiting mends: a limiter that nothing enforces would stay unnoticed. Nor is
// ErrClosed, nor a request whose own context has ended.
func WithFailOpen() Option {
	return func(l *Limiter) { l.failOpen = true }
}

// WithDryRun admits every request and tells Observer.Refused which it would have
// refused, so that a limit can be tried on live traffic. Those get a nil lock.
//
// Requests that find their id free do take and hold its lock: without that
// nothing would be known of the others. So a dry run costs what the limiter will
// cost. Nothing waits, so that with [WithWait] it reports requests that waiting
// would have admitted, and [WithMaxHold] ends nothing. No request depends on its
// lock: what the lock's Bind gives neither ends with it nor carries it
// ([sqllock.Lock.DetachContexts]), so that a lock which the request has from
// another limiter stays the one that [sqllock.FromContext] finds. Only the lock's
// own Context still ends with it.
func WithDryRun() Option {
	return func(l *Limiter) { l.dryRun = true }
}

// WithMaxHold ends the work's contexts, those of the lock's Context and Bind,
// with cause [ErrMaxHold] once the lock has been held for maxHold. The lock
// itself stays held until its Unlock, so that no other request begins beside
// work that has not noticed yet. Work that waits for its request's body notices
// behind httpmw's Handler: Read of the body fails.
//
// It panics if maxHold is not positive.
func WithMaxHold(maxHold time.Duration) Option {
	if maxHold <= 0 {
		panic("ratelimit: WithMaxHold needs a positive duration")
	}
	return func(l *Limiter) { l.maxHold = maxHold }
}

// WithObserver has o told what the Limiter does.
func WithObserver(o Observer) Option {
	return func(l *Limiter) { l.observer = o }
}

// WithMaxIDLen sets how many bytes an id may have, 1,024 by default; one with
// more is refused with [ErrBadID].
//
// It panics if n is not positive.
func WithMaxIDLen(n int) Option {
	if n <= 0 {
		panic("ratelimit: WithMaxIDLen needs a positive number of bytes")
	}
	return func(l *Limiter) { l.maxIDLen = n }
}

// WithKeySecret makes the keys of ids with HMAC-SHA-256 under secret: for ids
// that attackers choose, who could otherwise search for one whose 64-bit key
// collides with a victim's. Every instance needs the same secret: while one is at
// work on a [sqllock.Session], another one with a different secret is refused with
// sqllock.ErrNotExclusive; see [sqllock.Namespace.Keyed]. It keeps a copy of secret.
//
// It panics if secret is empty.
func WithKeySecret(secret []byte) Option {
	if len(secret) == 0 {
		panic("ratelimit: WithKeySecret needs a secret that is not empty")
	}
	secret = bytes.Clone(secret)
	return func(l *Limiter) { l.keys = l.ns.Keyed(secret) }
}
