package session

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// An Expiry fails requests that only try, and releases, that have waited too
// long.
type Expiry struct {
	table   *keytable.Table
	timeout time.Duration
	why     func() error // the error for them
	armed   atomic.Bool  // a timer runs, for the oldest of them
}

// NewExpiry returns an Expiry that fails those of t after timeout, with the error
// of why. Its Arm is to be the Arrival of the table's Config.
func NewExpiry(t *keytable.Table, timeout time.Duration, why func() error) *Expiry {
	return &Expiry{table: t, timeout: timeout, why: why}
}

// Arm sees that the timer runs for what comes now, when there is nothing older.
func (e *Expiry) Arm() { e.arm(e.timeout) }

func (e *Expiry) arm(in time.Duration) {
	if e.armed.CompareAndSwap(false, true) {
		time.AfterFunc(in, e.expire)
	}
}

// expire is what the timer runs.
func (e *Expiry) expire() {
	e.armed.Store(false)
	if oldest, some := e.table.Expire(Now()-e.timeout, e.why); some {
		e.arm(oldest + e.timeout - Now())
	}
}
