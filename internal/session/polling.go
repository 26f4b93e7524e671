package session

import (
	"math/rand/v2"
	"sync"
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

	// AwayPause is the pause between attempts while the database does not serve.
	AwayPause = 250 * time.Millisecond

	// In the long run polls are pollEvery apart, however many keys are waited for.
	// After a quiet time so many may come sooner.
	pollEvery = 20 * time.Millisecond
	pollBurst = 8
)

// A Poller has the keys tried again that other processes hold and for which
// callers wait: all of them together. A table that is closed has none.
type Poller struct {
	table *keytable.Table
	now   func() time.Duration

	mu     sync.Mutex // protects what follows
	timer  *time.Timer
	armed  bool
	pause  time.Duration // the next; 0: pollFirst
	polled int           // keys that are waited for, at the last look
	spent  time.Duration // when the polls so far would have ended, pollEvery apart
}

// NewPoller returns a Poller of t, which reads the time by now. Look must be
// called after each batch.
func NewPoller(t *keytable.Table, now func() time.Duration) *Poller {
	return &Poller{table: t, now: now, spent: now()}
}

// Look arms the timer if callers wait. It is called after each batch.
func (p *Poller) Look() {
	n := p.table.Polls()
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh := n > p.polled
	p.polled = n
	switch {
	case n == 0:
		p.pause = 0
		return
	case fresh:
		p.pause = 0
	case p.armed:
		return
	}
	p.pause = min(max(2*p.pause, pollFirst), pollMax)
	wait := max(jitter(p.pause), p.spent-pollBurst*pollEvery-p.now())
	switch {
	case p.timer == nil:
		p.timer = time.AfterFunc(wait, p.poll)
	case p.armed && !p.timer.Stop(): // it is about to poll
		return
	default:
		p.timer.Reset(wait)
	}
	p.armed = true
}

// poll is what the timer runs.
func (p *Poller) poll() {
	p.mu.Lock()
	p.armed = false
	p.spent = max(p.spent, p.now()) + pollEvery
	p.mu.Unlock()
	if p.table.Poll() > 0 { // the others are not due yet, and no batch may come
		p.Look()
	}
}

// jitter takes up to a half off d, so that the waiters for one thing do not all
// come at once.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}
