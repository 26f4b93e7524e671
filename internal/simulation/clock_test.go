package simulation

import "time"

// start is the time at which every synctest bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// now returns the time of the bubble, which all clients share. It is never 0.
func now() time.Duration { return time.Since(start) + 1 }
