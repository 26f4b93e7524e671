package simulation

import "time"

// start is when the time of a synctest bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// now is the bubble's time, which all clients share; never 0.
func now() time.Duration { return time.Since(start) + 1 }
