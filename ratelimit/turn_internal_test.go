package ratelimit

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A turn passes on while the func of WithLimit is slow, and comes back when it
// returns. If the func has returned before the turn passes, the request keeps
// it.
func TestTurnPassesOn(t *testing.T) {
	t.Parallel()
	l := AtMost(2, sqllock.NewMemory(), "export", WithWait(time.Hour, 2), WithLimit(func(context.Context, string) int { return 1 }))
	var waiters []*waiter
	for range 2 {
		p, err := l.newPlace(t.Context(), "ada")
		if err != nil || !p.enterLine(flow{}, false) {
			t.Fatalf("got %v, want a place in line", err)
		}
		defer p.leaveLine(flow{}, false)
		w := p.enterQueue()
		defer w.leaveQueue()
		waiters = append(waiters, w)
	}
	first := func(step string, want int) {
		t.Helper()
		for i, w := range waiters {
			if w.isFirst() != (i == want) {
				t.Errorf("%s: waiter %d is first: %v", step, i, w.isFirst())
			}
		}
	}
	first("at the beginning", 0)
	waiters[0].setCalling(true)
	first("while its func runs", 0)
	waiters[0].passTurn()
	first("while its func is slow", 1)
	waiters[0].setCalling(false)
	first("when it has returned", 0)
	waiters[0].passTurn() // by a timer that has just ended
	first("when its timer is late", 0)
}
