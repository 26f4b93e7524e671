package session

import (
	"testing"
	"testing/synctest"
	"time"
)

// A response after the deadline grants nothing, even before the timer has fired.
// A process that was frozen reads such a response when it wakes up.
func TestResponseAfterTheDeadline(t *testing.T) {
	for _, late := range []time.Duration{-1, 0, 1} {
		synctest.Test(t, func(t *testing.T) {
			o := Defaults()
			o.Lease, o.LeaseSet = MinLease, true
			o.Suit()
			c := &connection{s: &Session{options: o}, gone: make(chan struct{})}
			c.beginLease()
			defer c.timer.Stop()
			c.sending()
			c.deadline.Store(int64(Now() - late)) // as when the process stood still, and no timer has fired yet
			if over := c.Over(); over != (late >= 0) {
				t.Errorf("%v after the deadline: over is %t", late, over)
			}
			if _, ok := c.renew(); ok != (late < 0) {
				t.Errorf("a response %v after the deadline: in time is %t", late, ok)
			}
		})
	}
}
