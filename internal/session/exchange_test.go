package session

import (
	"testing"
	"time"
)

// Two statements are faster than one if the callers need longer for their next
// requests than a statement takes.
func TestHalves(t *testing.T) {
	t.Parallel()
	const callers = 100
	for roundTrip, want := range map[time.Duration]bool{callers*callerWork - 1: true, callers * callerWork: false} {
		c := &connection{roundTrip: roundTrip}
		if got := c.halves(callers); got != want {
			t.Errorf("a round trip of %v for %d callers: %t, want %t", roundTrip, callers, got, want)
		}
	}
}
