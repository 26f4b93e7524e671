package simulation

import "time"

// simStart is when the time of a synctest bubble begins.
var simStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// simNow is the bubble's time, which all clients share; never 0.
func simNow() time.Duration { return time.Since(simStart) + 1 }
