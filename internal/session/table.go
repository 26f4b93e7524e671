package session

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

const (
	// Fairness is how long the callers of one process may hand a key to each
	// other. Then it goes through the database, so that other processes get it.
	Fairness = time.Second

	// pollFirst is the pause before the first poll after a key was denied to
	// waiting callers. It doubles up to pollMax. Each pause is less a random part
	// of up to a half.
	pollFirst = 4 * time.Millisecond
	pollMax   = 48 * time.Millisecond

	// YieldFor is how long a process stays away from a key that its callers have
	// handed to each other for the time of Fairness. It is longer than the pause
	// between two polls of another process.
	YieldFor = pollMax + pollMax/4

	// In the long run polls are pollEvery apart, however many keys are waited for.
	// After a quiet time so many may come sooner.
	pollEvery = 20 * time.Millisecond
	pollBurst = 8
)

// A Table is a key table that a database serves, with two timers. One has the
// keys tried again for which callers wait and that other processes hold: all of
// them together. The other fails calls that wait for a response for too long.
type Table struct {
	*keytable.Table
	timeout time.Duration
	late    func() error // the error of calls that have waited for timeout
	armed   atomic.Bool  // a timer runs, for the oldest of them

	mu     sync.Mutex // protects what follows
	timer  *time.Timer
	polls  bool          // timer runs: a poll comes
	pause  time.Duration // the next; 0: pollFirst
	polled int           // keys that are waited for, at the last look
	spent  time.Duration // when the polls so far would have ended, pollEvery apart
}

// NewTable returns a table of c, whose clock is Now. Requests that only try, and
// releases, fail with the error of late when they have waited for timeout. Look
// must be called after each batch.
func NewTable(c keytable.Config, timeout time.Duration, late func() error) *Table {
	t := &Table{timeout: timeout, late: late, spent: Now()}
	c.Now, c.Arrival = Now, func() { t.expireIn(timeout) }
	t.Table = keytable.New(c)
	return t
}

// expireIn sees that the timer runs for what comes now, when there is nothing
// older.
func (t *Table) expireIn(d time.Duration) {
	if t.armed.CompareAndSwap(false, true) {
		time.AfterFunc(d, t.expire)
	}
}

// expire is what that timer runs.
func (t *Table) expire() {
	t.armed.Store(false)
	if oldest, some := t.Expire(Now()-t.timeout, t.late); some {
		t.expireIn(oldest + t.timeout - Now())
	}
}

// Look sees that the keys are tried again for which callers wait. A table that is
// closed has none.
func (t *Table) Look() { t.look(t.Polls()) }

// look is Look, where n keys, groups and stacks wait to be tried again.
func (t *Table) look(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := n > t.polled
	t.polled = n
	switch {
	case n == 0:
		t.pause = 0
		return
	case fresh:
		t.pause = 0
	case t.polls:
		return
	}
	t.pause = min(max(2*t.pause, pollFirst), pollMax)
	wait := max(jitter(t.pause), t.spent-pollBurst*pollEvery-Now())
	switch {
	case t.timer == nil:
		t.timer = time.AfterFunc(wait, t.poll)
	case t.polls && !t.timer.Stop(): // it is about to poll
		return
	default:
		t.timer.Reset(wait)
	}
	t.polls = true
}

// poll is what that timer runs.
func (t *Table) poll() {
	t.mu.Lock()
	t.polls = false
	t.spent = max(t.spent, Now()) + pollEvery
	t.mu.Unlock()
	if t.Poll() > 0 { // the others are not due yet, and no batch may come
		t.Look()
	}
}

// jitter takes up to a half off d, so that the waiters for one thing do not all
// come at once.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}
