package sqllock

import (
	"testing"
	"time"
)

// The boot clock runs.
func TestBootTimeGoesOn(t *testing.T) {
	before, began := bootTime(), now()
	for now()-began < 2*time.Millisecond {
	}
	if before == 0 {
		t.Skip("this system has no such clock")
	}
	if passed := bootTime() - before; passed < 2*time.Millisecond {
		t.Errorf("%v of boot time passed in 2 ms", passed)
	}
}

// The margin covers the clock assumptions of docs/safety.md: a step of the
// server's clock by σ, the drift of clocks over the lease, and 100 ms for timers
// that are late.
func TestMargin(t *testing.T) {
	for lease := minLease; lease <= maxLease; lease += lease / 7 {
		o := newOptions([]Option{WithLease(lease)})
		if err := o.validate(); err != nil {
			t.Fatalf("lease %v: %v", lease, err)
		}
		margin := lease - o.validFor() - time.Duration(clockDrift*float64(lease))
		step := lease / 10
		if margin <= step+time.Duration(clockDrift*float64(lease))+100*time.Millisecond {
			t.Errorf("lease %v: a margin of %v is too little", lease, margin)
		}
		if o.validFor() <= 3*o.heartbeat {
			t.Errorf("lease %v: three heartbeats of %v do not fit", lease, o.heartbeat)
		}
	}
}
