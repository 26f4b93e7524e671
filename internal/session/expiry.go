package session

import (
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// An Expiry fails requests that only try, and releases, that have waited too
// long.
type Expiry struct {
	table   *keytable.Table
	timeout time.Duration
	why     func() error // the error for them

	mu    sync.Mutex // protects what follows; taken after that of the table
	timer *time.Timer
	armed bool          // the timer runs
	due   time.Duration // while armed
}

// NewExpiry returns an Expiry that fails those of t after timeout, with the error
// of why. Its Arm is to be the Arrival of the table's Config.
func NewExpiry(t *keytable.Table, timeout time.Duration, why func() error) *Expiry {
	return &Expiry{table: t, timeout: timeout, why: why}
}

// Arm sees that the timer runs for what comes now.
func (e *Expiry) Arm() { e.arm(Now() + e.timeout) }

// arm sees that the timer fires at this time or before.
func (e *Expiry) arm(at time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.armed && e.due <= at {
		return
	}
	e.armed, e.due = true, at
	if e.timer == nil {
		e.timer = time.AfterFunc(at-Now(), e.expire)
	} else {
		e.timer.Reset(at - Now())
	}
}

// expire is what the timer runs.
func (e *Expiry) expire() {
	e.mu.Lock()
	e.armed = false
	e.mu.Unlock()
	if oldest, some := e.table.Expire(Now()-e.timeout, e.why); some {
		e.arm(oldest + e.timeout)
	}
}
