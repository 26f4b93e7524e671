package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The waiters of a process for keys that another one holds cost at most fifty
// statements a second, however many keys they are. Keys that become free are all
// found within the longest pause.
func TestWaitersAreBounded(t *testing.T) {
	for _, n := range []int{1, 100, 2000} {
		t.Run(fmt.Sprint(n, " keys"), func(t *testing.T) {
			p := plan{Clients: 2, PerConn: 10_000, Latency: 200 * time.Microsecond}
			for _, wrong := range p.live(t, true, make(map[string]int), func(w *world) { waitersAreBounded(t, w, n) }) {
				t.Error(wrong)
			}
		})
	}
}

func waitersAreBounded(t *testing.T, w *world, n int) {
	const (
		watched   = 20 * time.Second
		perSecond = 50
		heartbeat = lease / 5 // at least one statement in that time
		longest   = 60 * time.Millisecond
	)
	holds, waits := w.clients[0].session, w.clients[1].session
	var held sqllock.Locks
	got := make(chan time.Duration, n)
	for i := range n {
		key := sqllock.ID(int64(i))
		w.countCall(holds)
		lock, err := holds.TryLock(background, key)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lock)
		w.spawn(func() {
			w.countCall(waits)
			lock, err := waits.Lock(background, key)
			got <- now()
			if err != nil {
				t.Error(err)
			}
			_ = lock.Unlock()
		})
	}
	w.advance(time.Second)
	before := waits.Stats().Exchanges
	w.advance(watched)
	most := uint64(watched/time.Second*perSecond + watched/heartbeat)
	if n := waits.Stats().Exchanges - before; n > most {
		t.Errorf("%d statements in %v, want at most %d", n, watched, most)
	}
	began, took := now(), time.Duration(0)
	_ = held.Unlock()
	for range n {
		took = max(took, <-got-began)
	}
	if took > longest {
		t.Errorf("the free keys were found within %v, want %v", took, longest)
	}
}
