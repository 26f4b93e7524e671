package session

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/histogram"
)

// The figures that Stats reports. The engine counts where it decides, under
// Session.mu.

// counters are what the connections of a Session count. Session.mu protects them.
type counters struct {
	exchanges, losses, locksLost uint64
	lossesBy                     map[string]uint64 // by cause
	roundTrip, roundTripMax      time.Duration
	exchangeTime, exchangeKeys   *histogram.Histogram
}

// newCounters returns counters at 0.
func newCounters() counters {
	return counters{
		lossesBy:     map[string]uint64{causeLease: 0, causeConnection: 0, causeNotExclusive: 0, causeLockMissing: 0},
		exchangeTime: histogram.New(histogram.Seconds),
		exchangeKeys: histogram.New(histogram.Keys),
	}
}

// exchanged counts a batch of so many keys that took d, or a heartbeat of
// another kind, which has none. The smoothed time moves by an eighth of the
// difference, like TCP's (RFC 6298).
func (c *counters) exchanged(d time.Duration, keys int) {
	c.exchanges++
	c.exchangeTime.Observe(int64(d))
	c.exchangeKeys.Observe(int64(keys))
	if c.roundTrip == 0 {
		c.roundTrip = d
	} else {
		c.roundTrip += (d - c.roundTrip) / 8
	}
	c.roundTripMax = max(c.roundTripMax, d)
}

// lost counts a lost connection with so many locks.
func (c *counters) lost(cause string, locks int) {
	c.losses++
	c.lossesBy[cause]++
	c.locksLost += uint64(locks)
}
