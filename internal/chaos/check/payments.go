package check

import (
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Paid is the effect that a request with an idempotency key has left.
type Paid struct{ Key, Number int64 }

// What the error of Services matches if a request with an idempotency key was
// not carried out once.
var (
	ErrPaidTwice    = errors.New("check: the request of an idempotency key took effect twice")
	ErrNotPaid      = errors.New("check: a client has the response of an effect that is not there")
	ErrDeclined     = errors.New("check: a client has a response without an effect, and there is one")
	ErrTwoResponses = errors.New("check: two clients have different responses to one idempotency key")
	ErrOtherPayload = errors.New("check: an idempotency key was accepted with another payload")
	ErrStatus       = errors.New("check: a request with an idempotency key has a status that it may not have")
	ErrUnanswered   = errors.New("check: a request with an idempotency key is never carried out")
)

// payments checks each idempotency key:
//
//   - Its request took effect once at most.
//   - All responses that are kept are the same to the byte. They are the response
//     of the effect that is there, or of a handler that declined and left none. A
//     handler that declines after its lock was lost is not kept, so its own
//     response counts only by what it must not leave.
//   - With another payload there is no such response.
//   - A failure of the middleware is 409 or 503, or 422 with another payload. A
//     500 is the handler's.
//   - A client that goes on trying gets the response in the end.
func (c *services) payments(events []history.Event, left Left) {
	paid := map[int64]int64{} // effects by key
	for _, p := range left.Paid {
		if _, twice := paid[p.Key]; twice {
			c.found.add(ErrPaidTwice, p)
		}
		paid[p.Key] = p.Number
	}
	kept := map[int64]history.Payment{} // the first by key
	for _, e := range events {
		if e.Payment == nil {
			continue
		}
		p := *e.Payment
		c.countPayment(p)
		first, again := kept[p.Key]
		effect, done := paid[p.Key]
		switch {
		case !p.Kept():
			if p.Last && !p.Other {
				c.found.add(ErrUnanswered, p)
			}
			if !failsAsItMay(p) {
				c.found.add(ErrStatus, p)
			}
			continue
		case p.Other:
			c.found.add(ErrOtherPayload, p)
			continue
		case p.Declined() && done && (p.Replayed || effect == p.Receipt):
			c.found.add(ErrDeclined, p)
		case !p.Declined() && (!done || effect != p.Receipt):
			c.found.add(ErrNotPaid, p)
		}
		if !p.Stored() {
			continue
		}
		if !again {
			kept[p.Key] = p
		} else if first.Status != p.Status || first.Receipt != p.Receipt || first.Body != p.Body {
			c.found.add(ErrTwoResponses, p)
		}
	}
}

// failsAsItMay reports whether p, whose response is not kept, has a status that
// a request may have.
func failsAsItMay(p history.Payment) bool {
	switch p.Status {
	case 0, http.StatusConflict, http.StatusServiceUnavailable:
		return true
	case http.StatusUnprocessableEntity:
		return p.Other
	}
	return p.Status >= 500 && p.Receipt != 0
}

func (c *services) countPayment(p history.Payment) {
	switch {
	case p.Kept() && p.Replayed:
		c.count(&c.Replayed, p.Begin, p.End)
	case p.Kept():
		c.count(&c.Paid, p.Begin, p.End)
	case p.Status == http.StatusConflict:
		c.count(&c.InFlight, p.Begin, p.End)
	case p.Other && p.Status == http.StatusUnprocessableEntity:
		c.count(&c.OtherPayload, p.Begin, p.End)
	default:
		c.count(&c.Unanswered, p.Begin, p.End)
	}
}
