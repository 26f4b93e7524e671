package session

import (
	"runtime"
	"sync"
	"sync/atomic"
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

// A goroutine that queues nothing, and is always ready to run, gets one turn
// before a statement is sent. Otherwise each statement would wait for the other
// work of a busy processor again and again.
func TestNoWaitForOtherWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns atomic.Int32
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				turns.Add(1)
				runtime.Gosched()
			}
		}
	})
	runtime.Gosched() // it has begun
	before := turns.Load()
	(&connection{s: new(Session)}).coalesce()
	if n := turns.Load() - before; n > 8 { // one, but for the runtime's own decisions
		t.Errorf("other work got %d turns", n)
	}
	close(stop)
	work.Wait()
}
