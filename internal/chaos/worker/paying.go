package worker

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// New idempotency keys come up with time: so many in each phase. All processes
// derive them from the clock of the host, so several want the same ones.
const (
	paymentPhase = history.Moment(150 * time.Millisecond)
	newPayments  = 3
)

// longAgo is how old the key of a late retry may be, in phases.
const longAgo = 60

// A paying caller is a client that sends each request until it has a response
// that is kept.
type paying struct {
	caller
	shop *shop
}

// attemptTimeout bounds an attempt, and lastAttempts how long a client goes on
// when no fault comes any more.
const (
	attemptTimeout = 10 * time.Second
	lastAttempts   = 15 * time.Second
)

func (c *paying) run(resting context.Context) {
	for resting.Err() == nil {
		phase := history.Now() / paymentPhase
		if c.chance(20) { // of another client's request, or a retry after a long time
			phase -= history.Moment(c.rng.IntN(longAgo))
		}
		key := int64(phase)*newPayments + c.rng.Int64N(newPayments)
		if c.insist(resting, key) && c.chance(10) {
			c.notePayment(c.attempt(key, true, attemptTimeout))
		}
		_ = Pause(resting, c.upTo(20*time.Millisecond))
	}
}

// insist sends the request of key until there is a response that the client
// keeps. It reports whether one is stored.
func (c *paying) insist(resting context.Context, key int64) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := context.AfterFunc(resting, func() { time.AfterFunc(lastAttempts, cancel) })
	defer stop()
	for {
		timeout := attemptTimeout
		if c.chance(10) && resting.Err() == nil { // the client leaves
			timeout = time.Nanosecond + c.upTo(20*time.Millisecond)
		}
		p := c.attempt(key, false, timeout)
		if !p.Kept() && Pause(ctx, c.upTo(30*time.Millisecond)) == nil {
			c.notePayment(p)
			continue
		}
		p.Last = true
		c.notePayment(p)
		return p.Stored()
	}
}

func (c *paying) notePayment(p history.Payment) {
	c.w.note(history.Event{Serviced: history.Serviced{Payment: &p}})
}

// attempt sends the request of key once.
func (c *paying) attempt(key int64, other bool, timeout time.Duration) history.Payment {
	p := history.Payment{Process: c.w.config.Process, Key: key, Other: other, Begin: history.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	p.Status, p.Receipt, p.Body, p.Replayed = c.shop.ask(ctx, key, other)
	p.End = history.Now()
	return p
}
