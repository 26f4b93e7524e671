package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// ErrResigned is the cause with which a leader's context ends after
// [Campaign.Resign].
var ErrResigned = errors.New("election: leader was asked to resign")

// A Campaign has this process stand for leader of a key, and do the leader's work
// in each term that it wins: of all processes that campaign for one key, one leads
// at a time. It is made by New; its methods may be called at once from
// several goroutines.
//
// The promise is that of a lock, no more and no less: see [sqllock.Lock.Err] for what a
// leader does right before an effect that only a leader may have, and [sqllock.Fence] for
// what holds even if it freezes between the two. It needs a Locker that notices
// losses: a [sqllock.Session] or [sqllock.Shard]. With [sqllock.PerTx] and [sqllock.OnConn] a leader learns of
// one only when it uses the connection.
//
// Who is not leader waits in [sqllock.Locker.Lock]: a Session's first waiter for a key asks
// the database again every 24 to 48 ms.
//
// Invariant: from one call of Run's function to the next there is an Unlock, so two
// terms of one Campaign never overlap, however late a leader is to stop.
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

// A Option changes what [New] makes.
type Option func(*Campaign)

// The defaults of WithBackoff.
const (
	minPauseDefault = time.Second
	maxPauseDefault = 30 * time.Second
)

// maxLockerPause is how long a process waits at the most after an error of the locker, which
// has a backoff of its own: nobody leads until it asks again.
const maxLockerPause = 3 * time.Second

// WithBackoff sets how long a process stays out of the race when a term of its own
// is over, so that others get their turn and a leader that is broken does not
// spin: least, doubled with each term in a row that its function ended with an error, up
// to most, and less a random part of up to a half. A term as long as most counts as
// a good one, whatever it ended with. The default is 1 s, up to 30 s. After errors of the
// locker, as of a database that is away, the pause grows likewise, but not beyond 3 s, or least if
// that is more.
//
// WithBackoff panics if least is not positive, or greater than most.
func WithBackoff(least, most time.Duration) Option {
	if least <= 0 || most < least {
		panic("election: WithBackoff needs a positive duration and one that is not less")
	}
	return func(c *Campaign) { c.minPause, c.maxPause = least, most }
}

// New makes a Campaign for key in locks, which is to be Run. A process may
// have several, for different keys, on one Session.
//
// New panics if locks is nil.
func New(locks sqllock.Locker, key sqllock.Key, opts ...Option) *Campaign {
	if isNil(locks) {
		panic("election: New needs a Locker that is not nil")
	}
	c := &Campaign{locks: locks, key: key, minPause: minPauseDefault, maxPause: maxPauseDefault}
	for _, opt := range opts {
		opt(c)
	}
	return c
}

var errRunning = errors.New("election: the Campaign is running already: make another with New, or wait until Run has returned")

// Run waits until this process is the leader and calls lead, and so on, term after
// term, until ctx ends.
//
// lead's context is ctx, with the lock in it ([sqllock.FromContext]), and ends before ctx if the
// term is over: its [context.Cause] is ErrLost after a loss, ErrClosed if the Session
// was closed, ErrResigned after Resign. lead must then return soon: after a loss others lead already,
// after Resign they wait for it. No other term begins in this process before it has returned.
//
// Whatever lead returns, the key is given back and this process stands again
// after a pause (see [WithBackoff]): nil is a leader that resigns, an error while its
// context was good is a leader that failed, for which the pause grows. [Campaign.Status] tells the
// last error. Who wants to campaign no more ends ctx. A panic of lead gives the key back
// and goes on up.
//
// Run goes on, likewise after a pause, when the locker answers with an error, be it ErrUnavailable, ErrConfig or ErrCapacity. It
// returns ctx's error, joined by that of lead if it ended with one after ctx had, or by the locker's
// if that had one of its own; or, at once, ErrClosed or ErrNotExclusive of the locker, which
// waiting does not mend; or an error that says that the
// Campaign is running already. It panics if lead is nil.
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
		if err := rest(ctx, jitter(pause)); err != nil {
			return err
		}
		if most > 0 {
			pause += min(pause, c.maxPause-pause)
		}
	}
}

// stand waits for the key and leads for a term; most is how far the pauses may grow by now, 0 if
// there is no reason for them to grow. err is for Run to return.
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

// rest pauses, or returns ctx's error if it ends before.
func rest(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Resign asks this process to lead no more for now: the context of the function
// that leads ends with cause ErrResigned, and when it has returned the key is given
// back. Resign does not wait for that. Who does not lead has nothing to resign
// from. Without another process that campaigns, this one leads again after its
// pause; to leave for good, end Run's context.
func (c *Campaign) Resign() {
	c.mu.Lock()
	lock := c.now.lock
	c.mu.Unlock()
	lock.Cancel(ErrResigned) // a nil *Lock has no context
}

// isNil reports whether l is nil, or, say, the *Session of an Open whose error
// was ignored.
func isNil(l sqllock.Locker) bool {
	v := reflect.ValueOf(l)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// jitter takes up to a half off d, so that processes that stand for the same key
// do not all come at once.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }
