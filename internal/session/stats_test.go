package session

import (
	"testing"
	"time"
)

// The round trip moves by an eighth of the difference. Losses add up.
func TestCounters(t *testing.T) {
	t.Parallel()
	c := newCounters()
	for i, want := range []time.Duration{80, 90, 80} {
		if c.exchanged([]time.Duration{80, 160, 10}[i], 1); c.RoundTrip != want {
			t.Errorf("a round trip of %d after %d, want %d", c.RoundTrip, 1+i, want)
		}
	}
	c.lost(causeLease, 2)
	c.lost(causeConnection, 3)
	if c.RoundTripMax != 160 || c.Exchanges != 3 || c.Losses != 2 || c.LocksLost != 5 || c.LossesBy[causeLease] != 1 {
		t.Errorf("%+v", c)
	}
}
