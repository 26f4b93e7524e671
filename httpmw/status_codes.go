package httpmw

import (
	"errors"
	"math/rand/v2"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// A reason says why a request was rejected. It decides on the status code.
type reason = admission.Reason

const (
	busy        = admission.Busy
	badKey      = admission.BadKey
	ended       = admission.Ended
	unavailable = admission.Unavailable
	interrupted = admission.Interrupted // without a response
	fault       = admission.Fault
	reasons     = admission.Reasons
	chosen      = admission.Chosen
)

// reasonOf returns the reason of a request that failed with err.
func reasonOf(err error) reason {
	why := admission.ReasonOf(err)
	if why != chosen && errors.Is(err, ErrInterrupted) { // whatever the cause
		return interrupted
	}
	return why
}

// status returns the status code for why. [Middleware.Reject] lists the codes.
func (m *Middleware) status(why reason) int {
	switch {
	case why == busy && m.conflict:
		return http.StatusConflict
	case why == busy:
		return http.StatusTooManyRequests
	case why == badKey:
		return http.StatusBadRequest
	case why == fault:
		return http.StatusInternalServerError
	}
	return http.StatusServiceUnavailable
}

// mayTryAgain reports whether the same request may succeed later.
func mayTryAgain(why reason) bool { return why != badKey && why != fault }

// retryAfter returns how many seconds the client should wait.
func (m *Middleware) retryAfter(why reason, err error) int64 {
	if why == busy {
		_, _, retry := m.gate.Full(err)
		return admission.Seconds(retry)
	}
	return 1 + rand.Int64N(3) // random, so that clients rejected at one moment do not return at one
}
