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
	timer   *time.Timer
	armed   atomic.Bool
}

// NewExpiry returns an Expiry that fails those of t after timeout, with the
// error of why. Arm is the Arrived of the table's Config.
func NewExpiry(t *keytable.Table, timeout time.Duration, why func() error) *Expiry {
	return &Expiry{table: t, timeout: timeout, why: why}
}

// Arm sees that the timer runs. The table is locked.
func (e *Expiry) Arm() {
	switch {
	case e.armed.Swap(true):
	case e.timer == nil:
		e.timer = time.AfterFunc(e.timeout, e.expire)
	default:
		e.timer.Reset(e.timeout)
	}
}

// expire is what the timer runs.
func (e *Expiry) expire() {
	e.armed.Store(false)
	if oldest, some := e.table.Expire(Now()-e.timeout, e.why); some {
		e.timer.Reset(oldest + e.timeout - Now())
		e.armed.Store(true)
	}
}
