package session

import (
	"runtime"
	"testing"
	"time"
)

// The boot clock runs.
func TestBootTimeGoesOn(t *testing.T) {
	before, began := bootTime(), Now()
	for Now()-began < 2*time.Millisecond {
	}
	if before == 0 && runtime.GOOS != "linux" {
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
	for lease := MinLease; lease <= MaxLease; lease += lease / 7 {
		o := Defaults()
		o.Lease, o.LeaseSet = lease, true
		o.Suit()
		if err := o.Validate(); err != nil {
			t.Fatalf("lease %v: %v", lease, err)
		}
		drift, step := time.Duration(clockDrift*float64(lease)), lease/10
		if margin := lease - o.validFor() - drift; margin <= step+drift+100*time.Millisecond {
			t.Errorf("lease %v: a margin of %v is too little", lease, margin)
		}
		if o.validFor() <= 3*o.Heartbeat {
			t.Errorf("lease %v: three heartbeats of %v do not fit", lease, o.Heartbeat)
		}
	}
}
