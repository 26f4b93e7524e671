package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A goroutine that ends later than goleak waits by itself is no leak.
func TestFindWaits(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-end
	}()
	if goleak.Find(before) == nil {
		t.Fatal("goleak does not see a goroutine that waits")
	}
	time.AfterFunc(time.Second, func() { close(end) })
	if err := Find(before); err != nil {
		t.Error(err)
	}
	<-ended
}

// Failed tests are reported as they are, without a look for goroutines.
func TestCheckKeepsTheCode(t *testing.T) {
	if got := Check(3); got != 3 {
		t.Errorf("Check(3) = %d, want 3", got)
	}
}
