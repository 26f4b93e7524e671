package ratelimit

import (
	"bytes"
	"time"
)

// An Option changes the policy of a [Limiter]. Of two that set the same, the
// last one counts, except for [WithObserver].
type Option func(*Limiter)

// WithWait lets a request wait up to maxWait for a busy id instead of being
// rejected at once. At most waiters requests of each id wait in this process;
// the next is rejected at once. maxWait bounds the wait, never the work. Let as
// many wait as can be served within maxWait: the others would only be rejected
// later.
//
// Only requests that find their id busy wait and count. While the database is
// away, a new request is rejected without a place in line. A request that waits
// already keeps its place until maxWait ends.
//
// Waiting requests of one Limiter are served in the order of their arrival, and
// by the Priority of [WithClasses]. There is no order between processes, or
// between Limiters of one namespace, so share one Limiter in a process. An
// [AtMost] limiter over a Locker without LockAny tries again from time to time,
// without an order. Session, shard.Locker and Memory have LockAny.
//
// In the line of a level of [AcquireAll] the places belong to the id of the
// first level, so one user cannot use up those of the others. The first levels
// take turns: many requests of one id delay the first one of another id by at
// most one of them.
//
// WithWait panics if maxWait or waiters is not positive.
func WithWait(maxWait time.Duration, waiters int) Option {
	if maxWait <= 0 || waiters <= 0 {
		panic("ratelimit: WithWait needs a positive duration and number of waiters")
	}
	return func(l *Limiter) { l.maxWait, l.maxWaiters = maxWait, waiters }
}

// WithRetryAfter sets how long a rejected client should wait. The default is
// what the Limiter has learnt of the id, which f gets:
//
//   - Of a hold of the id, it is the mean length of holds that have ended, less
//     the age of this hold. In the mean the latest counts for an eighth.
//   - A hold that is older than the mean is late. It is expected to take as long
//     again as it is late. So clients of an id that hangs come back less and
//     less often.
//   - Of several holds of the id, the one that should end first counts. They are
//     those of this process. If it has none, they are those of other processes
//     that the registry of the Locker reports ([sqllock.WithRegistry]).
//   - If no hold of the id is known, it is the mean length of holds that have
//     ended.
//
// It is at least a second and at most a minute, and a second before the first
// hold.
//
// A random part is added, so that clients do not return together. It is at most
// the time in which the clients ahead can be served, and a minute. Those ahead
// were rejected since the last hold of the id began. Each takes the mean length
// of a hold, or a second if that is longer, divided by the limit. So the first
// client has no random part, and HTTP's whole seconds differ for the others. If
// only other processes hold the id, up to two clients seem to be ahead.
//
// f gets the sum. If it returns a constant, all clients return together. A
// result that is not positive counts as a second. f must be quick and safe for
// concurrent use. WithRetryAfter panics if f is nil.
func WithRetryAfter(f func(learnt time.Duration) time.Duration) Option {
	if f == nil {
		panic("ratelimit: WithRetryAfter needs a func that is not nil")
	}
	return func(l *Limiter) { l.retryAfter = f }
}

// WithFailOpen admits requests without a lock while the database is away. It is
// for a limit that protects comfort, not correctness. Acquire then returns a
// nil lock, whose Err is [sqllock.ErrUnavailable]. The event is [FailedOpen].
//
// Only sqllock.ErrUnavailable fails open:
//
//   - ErrCapacity does not, since a flood of ids must not switch the limiter
//     off.
//   - ErrNotExclusive and ErrConfig do not. Waiting does not correct them, and
//     a limiter that nothing enforces would stay unnoticed.
//   - ErrClosed does not, nor does the end of the request's own context.
func WithFailOpen() Option {
	return func(l *Limiter) { l.failOpen = true }
}

// WithDryRun admits every request, and reports as [DryRun] which requests it
// would have rejected. So a limit can be tried on live traffic. Those requests
// get a nil lock.
//
// Requests that find their id free acquire and hold its lock. Otherwise the
// Limiter would know nothing about the others. So a dry run costs as much as
// the limiter will. No request waits: with [WithWait] the dry run also reports
// requests that waiting would have admitted. [WithMaxHold] ends nothing.
//
// No request depends on its lock. The context of the lock's Bind neither ends
// with the lock nor carries it. If the request
// has a lock of another limiter, [sqllock.FromContext] still finds that one.
// Only the lock's own Context ends with it.
func WithDryRun() Option {
	return func(l *Limiter) { l.dryRun = true }
}

// WithMaxHold ends the contexts of the work with cause [ErrMaxHold] once the
// lock has been held for maxHold. These are the contexts of the lock's Context
// and Bind. The lock itself stays held until its Unlock, so that no other
// request begins while the work has not noticed the end yet. Behind the Handler
// of package httpmw, a Read of the request's body fails then.
//
// Without WithMaxHold the work may take any time. WithMaxHold panics if maxHold
// is not positive.
func WithMaxHold(maxHold time.Duration) Option {
	if maxHold <= 0 {
		panic("ratelimit: WithMaxHold needs a positive duration")
	}
	return func(l *Limiter) { l.maxHold = maxHold }
}

// WithObserver has o get the events of the Limiter. It may be given several
// times, and each Observer is told, in this order. It panics if o is nil.
func WithObserver(o Observer) Option {
	if o == nil {
		panic("ratelimit: WithObserver needs a func that is not nil")
	}
	return func(l *Limiter) { l.observers = append(l.observers, o) }
}

// WithMaxIDLen sets how many bytes an id may have. The default is 1,024. A
// longer id is rejected with [ErrBadID].
//
// WithMaxIDLen panics if n is not positive.
func WithMaxIDLen(n int) Option {
	if n <= 0 {
		panic("ratelimit: WithMaxIDLen needs a positive number of bytes")
	}
	return func(l *Limiter) { l.maxIDLen = n }
}

// WithKeySecret makes the keys of ids with HMAC-SHA-256 under secret. It is for
// ids that attackers choose. Otherwise an attacker could search for an id whose
// 64-bit key collides with that of a victim. WithKeySecret keeps a copy of
// secret.
//
// Every instance needs the same secret. On PostgreSQL's advisory locks an
// instance uses its secret from the first request until it ends. Meanwhile
// another instance with a different secret is rejected with
// [sqllock.ErrNotExclusive]. Other databases check nothing: see
// [sqllock.Namespace.Keyed].
//
// WithKeySecret panics if secret is empty.
func WithKeySecret(secret []byte) Option {
	if len(secret) == 0 {
		panic("ratelimit: WithKeySecret needs a secret that is not empty")
	}
	secret = bytes.Clone(secret)
	return func(l *Limiter) { l.slotKey = l.ns.Keyed(secret).SlotKey }
}
