package session

import "time"

// start is the origin of Now, so that a moment fits into a Duration.
var start = time.Now()

// Now returns the time by the monotonic clock. It is never 0, so 0 can mean
// "never".
func Now() time.Duration { return time.Since(start) + 1 }
