package sqllock

import (
	"math/rand/v2"
	"time"
)

// start is the origin of now, so that a moment fits into a Duration.
var start = time.Now()

// now is the time by the monotonic clock; never 0.
func now() time.Duration { return time.Since(start) + 1 }

// pollPause is how long to wait before the nth attempt at a busy key.
func pollPause(n int) time.Duration {
	return jitter(min(pollMin<<min(n, 10), pollMax))
}

// jitter takes up to a half off d, so that those who wait for the same thing do
// not all come at once.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}
