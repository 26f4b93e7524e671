package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// ErrResigned is the cause with which a leader's context ends after
// [Campaign.Resign].
var ErrResigned = errors.New("election: leader was asked to resign")

// A Campaign makes this process stand for leader of a key, and runs a function
// whenever it leads. New makes one, and Run runs it. Its methods are safe for
// concurrent use.
//
// One process leads at a time, as far as a lock can promise that. A leader
// calls [sqllock.Lock.Err] right before an effect that only a leader may have.
// A process may still freeze between the two: [sqllock.Fence] covers this, too.
//
// The Locker must notice that a lock is lost, as a [sqllock.Session] does, or a
// shard.Locker over Sessions. With [sqllock.PerTx] and [sqllock.OnConn] a
// leader notices a loss only when it uses the connection.
//
// A process that does not lead waits in [sqllock.Locker.Lock]. The first waiter
// of a Session asks the database again every 24 to 48 ms.
//
// Invariant: between two calls of Run's function there is an Unlock. Two terms
// of one Campaign never overlap, however slowly a leader stops.
type Campaign struct {
	locks              sqllock.Locker
	key                sqllock.Key
	minPause, maxPause time.Duration

	running atomic.Bool // Run is under way

	mu    sync.Mutex // protects what follows; never held while calling out
	now   term       // the term under way; its lock is nil if there is none
	terms int        // begun so far
	err   error      // how the last term, or attempt at one, ended
}

// An Option changes what [New] makes.
type Option func(*Campaign)

// The defaults of WithBackoff.
const (
	minPauseDefault = time.Second
	maxPauseDefault = 30 * time.Second
)

// maxLockerPause bounds the pause after an error of the Locker. No process
// leads until one asks again, and a Locker has a backoff of its own.
const maxLockerPause = 3 * time.Second

// WithBackoff sets how long this process pauses after a term of its own. The
// pause lets other processes lead, and keeps a leader that fails from spinning.
// The default is 1 s, up to 30 s.
//
// The pause begins with least. It doubles with each term in a row that ends
// with an error of the function, up to most. A random part of up to a half is
// taken off. A term that lasts as long as most does not count as failed,
// whatever its end.
//
// After errors of the Locker, as when the database is away, the pause grows in
// the same way. It stays below 3 s, or below least if that is more.
//
// WithBackoff panics if least is not positive, or greater than most.
func WithBackoff(least, most time.Duration) Option {
	if least <= 0 || most < least {
		panic("election: WithBackoff needs a positive duration and one that is not less")
	}
	return func(c *Campaign) { c.minPause, c.maxPause = least, most }
}

// New returns a Campaign for key, with the locks of a Locker. It does nothing
// until Run is called. A process may have several for different keys on one
// Session.
//
// New panics if locks is nil.
func New(locks sqllock.Locker, key sqllock.Key, opts ...Option) *Campaign {
	if inside.IsNil(locks) {
		panic("election: New needs a Locker that is not nil")
	}
	c := &Campaign{locks: locks, key: key, minPause: minPauseDefault, maxPause: maxPauseDefault}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

var errRunning = errors.New("election: the Campaign is running already: make another with New, or wait until Run has returned")

// Run waits until this process is the leader and calls lead, and repeats this
// until ctx ends. Each call of lead is one term.
//
// The context of lead is ctx with the lock in it ([sqllock.FromContext]). It
// ends when the term is over. Its [context.Cause] is then one of these:
//   - ErrLost after a loss. Another process may lead already.
//   - ErrClosed after Close of the Session.
//   - ErrResigned after Resign.
//   - The cause of ctx.
//
// lead must then return soon. After Resign the other processes wait for that,
// and after a loss they do not. In this process no other term begins before
// lead has returned.
//
// When lead returns, the key is released, and this process stands again after a
// pause (see [WithBackoff]). With nil the leader resigns. With an error, while
// its context is good, the leader has failed, and the pause grows.
// [Campaign.Status] reports the last error. A panic of lead releases the key,
// and then reaches the caller of Run.
//
// Run also goes on, after a pause, when the Locker returns an error such as
// ErrUnavailable, ErrConfig or ErrCapacity. It returns in these cases only:
//   - ctx has ended. The error is that of ctx, joined by an error of lead that
//     came after it, or by an error of the Locker.
//   - The Locker returns ErrClosed or ErrNotExclusive: waiting does not mend
//     these.
//   - The Campaign is running already.
//
// Run panics if lead is nil.
func (c *Campaign) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if lead == nil {
		panic("election: Campaign.Run needs a func that is not nil")
	}
	if !c.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer c.running.Store(false)
	for pause := c.minPause; ; {
		most, err := c.stand(ctx, lead)
		if err != nil {
			c.note(err)
			return err
		}
		pause = max(c.minPause, min(pause, most))
		select {
		case <-time.After(jitter(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if most > 0 {
			pause += min(pause, c.maxPause-pause)
		}
	}
}

// stand waits for the key and leads for a term. It returns how far the pauses
// may grow by now, or 0 if they need not grow. An err is for Run to return.
func (c *Campaign) stand(ctx context.Context, lead func(context.Context) error) (most time.Duration, err error) {
	lock, err := c.locks.Lock(ctx, c.key)
	switch {
	case err == nil:
		return c.serve(ctx, lock, lead)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return 0, errors.Join(ctx.Err(), err)
	case ctx.Err() != nil, errors.Is(err, sqllock.ErrClosed), errors.Is(err, sqllock.ErrNotExclusive):
		return 0, err
	}
	c.note(err)
	return maxLockerPause, nil
}

// Resign asks this process to stop leading for now. The context of the leading
// function ends with cause ErrResigned, and the key is released when the
// function has returned. Resign does not wait for that. It does nothing if this
// process does not lead.
//
// If no other process stands for the key, this one leads again after its pause.
// To leave for good, end the context of Run.
func (c *Campaign) Resign() {
	c.mu.Lock()
	lock := c.now.lock
	c.mu.Unlock()
	lock.Cancel(ErrResigned) // a nil *Lock has no context
}

// jitter takes up to a half off d, so that processes that stand for the same
// key do not all come at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }
