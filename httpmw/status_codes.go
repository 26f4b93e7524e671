package httpmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A verdict is why a request was not admitted, as far as its answer goes.
type verdict uint8

const (
	busy        verdict = iota
	badKey              // none, or one that cannot be
	gone                // the request's context ended first
	unknown             // it cannot be told whether the key is free
	interrupted         // its handler began, and ended with the context
	broken              // a fault of the server's own

	// Of an Idempotency.
	badBody
	tooLarge
	otherPayload

	verdicts = iota // how many there are
)

func verdictOn(err error) verdict {
	var key keyError
	switch {
	case errors.Is(err, ErrInterrupted): // whatever the cause
		return interrupted
	case errors.As(err, &key): // before what is ours: a KeyFunc may use a limiter, too
		return verdictOnKey(key)
	case errors.Is(err, ratelimit.ErrBusy):
		return busy
	case errors.Is(err, errBadBody):
		return badBody
	case errors.Is(err, ErrBodyTooLarge):
		return tooLarge
	case errors.Is(err, ErrOtherPayload):
		return otherPayload
	case errors.Is(err, ErrAnswerTooLarge), errors.Is(err, ErrTxUnusable), errors.Is(err, ErrNoRoute),
		errors.Is(err, ErrBodyConsumed), errors.Is(err, errShortIDs), errors.Is(err, errSwitched), errors.Is(err, errWiring):
		return broken
	case errors.Is(err, ErrNoKey), errors.Is(err, ratelimit.ErrBadID):
		return badKey
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return gone
	default:
		return unknown
	}
}

// verdictOnKey is the verdict on a KeyFunc's error.
func verdictOnKey(err keyError) verdict {
	switch {
	case err.ended:
		return gone
	case errors.Is(err, ErrNoKey), errors.Is(err, ratelimit.ErrBadID):
		return badKey
	case errors.Is(err, sqllock.ErrUnavailable):
		return unknown
	}
	return broken
}

// status is v's HTTP status; [Middleware.Reject] lists them.
func (m *Middleware) status(v verdict) int {
	switch v {
	case busy:
		if m.conflict {
			return http.StatusConflict
		}
		return http.StatusTooManyRequests
	case badKey, badBody:
		return http.StatusBadRequest
	case tooLarge:
		return http.StatusRequestEntityTooLarge
	case otherPayload:
		return http.StatusUnprocessableEntity
	case broken:
		return http.StatusInternalServerError
	default:
		return http.StatusServiceUnavailable
	}
}

// passes reports whether it may help to try again later.
func (v verdict) passes() bool {
	return v == busy || v == gone || v == unknown || v == interrupted
}

// retryAfter is what the client is told to wait, in whole seconds; 0: nothing.
func retryAfter(v verdict, err error) int64 {
	var refusal *ratelimit.BusyError
	switch {
	case !v.passes():
		return 0
	case errors.As(err, &refusal):
		return wholeSeconds(refusal.RetryAfter)
	case v == busy:
		return 1
	default:
		return 1 + rand.Int64N(3) // so that those refused at one moment do not come back at one
	}
}

// wholeSeconds is d rounded up, one at least.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return max(1, seconds)
}
