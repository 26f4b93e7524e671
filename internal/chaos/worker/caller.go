package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A caller asks for locks, holds them, gives them back, again and again.
type caller struct {
	*work
	rng *rand.Rand
}

// chance is true n times in a hundred.
func (c *caller) chance(n int) bool { return c.rng.IntN(100) < n }

func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

// A request is one call. It brings a lock of each place, or none; with one, it
// brings a lock of one of them.
type request struct {
	kind   history.Kind
	waits  bool
	one    bool
	limit  time.Duration // of its context; 0: none
	wait   time.Duration // that its limiters allow; 0: limit alone counts
	places []place
	call   func(context.Context) (sqllock.Locks, error)
}

// A place is where one lock of a call comes from.
type place struct {
	key   int64 // for the history, if there is no lock
	limit *limit
}

// until is the deadline of a call that began at begin; 0: there is none.
func (a *request) until(begin history.Moment) history.Moment {
	switch {
	case a.limit == 0:
		return 0
	case a.wait > 0:
		return begin + history.Moment(min(a.limit, a.wait))
	}
	return begin + history.Moment(a.limit)
}

// patience sets the limit of a's context. Some calls give up early, some of them
// before they have begun.
func (c *caller) patience(a *request) {
	switch {
	case c.chance(10):
		a.limit = time.Nanosecond + c.upTo(3*time.Millisecond)
	case a.waits:
		a.limit = 5*time.Millisecond + c.upTo(300*time.Millisecond)
	}
}

// one makes a call that brings one lock one that brings several.
func one(take func(context.Context, sqllock.Key) (*sqllock.Lock, error), key sqllock.Key) func(context.Context) (sqllock.Locks, error) {
	return func(ctx context.Context) (sqllock.Locks, error) {
		lock, err := take(ctx, key)
		return sqllock.Locks{lock}, err
	}
}

// take makes a call and notes a line for each of its places. It returns the locks
// that the call brought.
func (c *caller) take(a request) (locks []*observedLock) {
	ctx, cancel := context.WithCancel(context.Background())
	if a.limit > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), a.limit)
	}
	defer cancel()
	begin := history.Now()
	got, err := a.call(ctx)
	end := history.Now()
	c.count(err, begin)
	try := history.Try{
		Process: c.config.Process, Call: c.number(), Waits: a.waits, Kind: a.kind, Until: a.until(begin),
		Begin: begin, End: end, Result: ResultOf(err),
	}
	if !a.one && len(a.places) > 1 {
		try.All = len(a.places)
	}
	for i, p := range a.places { // of a failed call, each was held or none was granted
		of := try
		of.Key = p.key
		if p.limit != nil {
			of.Limited = history.Limited{Limit: p.key, Most: p.limit.most(begin, end)}
		}
		lock := granted(a, got, i)
		switch {
		case err != nil:
		case lock != nil:
			of.Key, of.Lock = lock.Key().Int64(), c.number()
			held := c.observe(lock, of.Lock)
			held.hold.Kind, held.hold.Limited = of.Kind, of.Limited
			locks = append(locks, held)
		default: // asked for, and perhaps granted for a moment
			of.Result = history.GaveUp
		}
		c.note(history.Event{Try: &of})
	}
	return locks
}

// granted returns the lock of a's i-th place, nil if there is none.
func granted(a request, got sqllock.Locks, i int) *sqllock.Lock {
	if a.one {
		j := slices.IndexFunc(got, func(l *sqllock.Lock) bool { return l != nil && l.Key().Int64() == a.places[i].key })
		if j < 0 {
			return nil
		}
		return got[j]
	}
	if i < len(got) {
		return got[i]
	}
	return nil
}

// noteEvery is how often a holder writes down until when its lock was valid. A
// process that is killed leaves no later trace of a lock.
const noteEvery = history.Moment(100 * time.Millisecond)

// looksOn bounds how long a holder looks on after a loss. By then its Session
// has another connection.
const looksOn = 1500 * time.Millisecond

// stay holds locks for a while and looks at them. It calls meanwhile after each
// look, and once more, with true, if a lock was lost.
func (c *caller) stay(resting context.Context, locks []*observedLock, length time.Duration, meanwhile func(lost bool)) {
	now := history.Now()
	end, noteAt := now+history.Moment(length), now
	if length < 5*time.Millisecond { // the line of its Try is its trace
		noteAt += noteEvery
	}
	for ; look(locks) && now < end && resting.Err() == nil; now = history.Now() {
		if now >= noteAt {
			for _, l := range locks {
				c.noteHold(l)
			}
			noteAt = now + noteEvery
		}
		meanwhile(false)
		time.Sleep(min(c.lookEvery(), max(0, time.Duration(end-now))))
	}
	if slices.ContainsFunc(locks, (*observedLock).lost) {
		meanwhile(true)
	}
}

// giveBack gives locks back in random order. The holder of a lost lock may look
// on for a while: the lock must not become valid again.
func (c *caller) giveBack(resting context.Context, locks []*observedLock) {
	for _, i := range c.rng.Perm(len(locks)) {
		l := locks[i]
		if l.lost() && c.chance(60) {
			for until := history.Now() + history.Moment(c.upTo(looksOn)); history.Now() < until && Pause(resting, 2*time.Millisecond) == nil; {
				l.look()
			}
		}
		l.giveBack()
		c.noteHold(l)
	}
}

// look reports whether all locks are held, by their Err.
func look(all []*observedLock) bool {
	ok := true
	for _, l := range all {
		ok = l.look() && ok
	}
	return ok
}

// listen holds a lock and relies on its context alone.
func (c *caller) listen(resting context.Context, l *observedLock, length time.Duration) {
	ctx, cancel := context.WithTimeout(resting, length)
	defer cancel()
	l.hold.Listens = true
	if l.look() {
		c.noteHold(l)
		select {
		case <-l.Context().Done():
			l.markLost()
		case <-ctx.Done():
		}
		l.look()
	}
}

func (c *caller) lookEvery() time.Duration {
	if c.config.Look > 0 {
		return c.config.Look
	}
	return 500 * time.Microsecond
}

func (c *caller) noteHold(l *observedLock) {
	h := l.hold
	c.note(history.Event{Hold: &h})
}
