package httpmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/internal/rejection"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A reason says why a request was rejected. It decides on the status code.
type reason uint8

const (
	busy        reason = iota // the limit is full
	badKey                    // the request has no key, or a bad one
	ended                     // the request's context ended before it was admitted
	unavailable               // the locks cannot be reached
	interrupted               // the handler ended with its context, without a response
	fault                     // a KeyFunc failed with an error of its own, or the policy of a limit

	reasons = iota // how many there are

	chosen reason = iota // the error chooses its response: see package rejection
)

// reasonOf returns the reason of a request that failed with err.
func reasonOf(err error) reason {
	var key keyError
	switch {
	case isChosen(err):
		return chosen
	case errors.Is(err, ErrInterrupted): // whatever the cause
		return interrupted
	case errors.As(err, &key): // before the limiter's errors: a KeyFunc may use a limiter, too
		return keyReason(key)
	case errors.Is(err, ratelimit.ErrBusy):
		return busy
	case errors.Is(err, ratelimit.ErrPolicy):
		return fault
	case errors.Is(err, ErrNoKey), errors.Is(err, ratelimit.ErrBadID):
		return badKey
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ended
	default:
		return unavailable
	}
}

// isChosen reports whether err itself, and not an error in it, is a
// rejection.Error.
func isChosen(err error) bool {
	_, ok := err.(*rejection.Error)
	return ok
}

// keyReason is reasonOf for the error of a KeyFunc.
func keyReason(err keyError) reason {
	switch {
	case err.ended:
		return ended
	case errors.Is(err, ErrNoKey), errors.Is(err, ratelimit.ErrBadID):
		return badKey
	case errors.Is(err, sqllock.ErrUnavailable):
		return unavailable
	}
	return fault
}

// status returns the status code for why. [Middleware.Reject] lists the codes.
func (m *Middleware) status(why reason) int {
	switch why {
	case busy:
		if m.conflict {
			return http.StatusConflict
		}
		return http.StatusTooManyRequests
	case badKey:
		return http.StatusBadRequest
	case fault:
		return http.StatusInternalServerError
	default:
		return http.StatusServiceUnavailable
	}
}

// mayTryAgain reports whether the same request may succeed later.
func (why reason) mayTryAgain() bool { return why != badKey && why != fault }

// retryAfter returns how many seconds the client should wait.
func retryAfter(why reason, err error) int64 {
	if why == busy {
		return wholeSeconds(places.Full(err).RetryAfter)
	}
	return 1 + rand.Int64N(3) // random, so that clients rejected at one moment do not return at one
}

// wholeSeconds returns d in seconds, rounded up, at least 1.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	return max(1, seconds)
}
