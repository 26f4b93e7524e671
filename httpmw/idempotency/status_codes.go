package idempotency

import (
	"context"
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A reason says why a request was rejected or failed. It decides on the status
// code and on the line in the log.
type reason uint8

const (
	busy         reason = iota // a request with this key is in flight
	ended                      // the request's context ended first
	badKey                     // no key or no principal, or a bad one
	badBody                    // the body could not be read
	tooLarge                   // the body is too large to be compared
	otherPayload               // the key was used with another payload
	interrupted                // the handler ended with its context, without a response
	unavailable                // the locks or the database cannot be reached
	fault                      // a mistake of the service
)

// What people read about a request that was rejected.
const (
	inFlightDetail = "Another request with this idempotency key is in progress."
	headerDetail   = "The request needs one header Idempotency-Key with 1 to 255 printable ASCII characters, and a user." + admission.CorrectIt
)

// responses are the responses to each reason but busy, whose response is
// httpmw's. That of badKey has a detail of its own in each Middleware.
var responses = map[reason]admission.Response{
	ended:        {Status: http.StatusServiceUnavailable, TryAgain: true, Detail: admission.EndedDetail},
	badKey:       {Status: http.StatusBadRequest},
	badBody:      {Status: http.StatusBadRequest, Detail: "The body of the request could not be read. Send the request again."},
	tooLarge:     {Status: http.StatusRequestEntityTooLarge, Detail: "The body of the request is too large. Send a smaller one."},
	otherPayload: {Status: http.StatusUnprocessableEntity, Detail: "The idempotency key was used for another request. Send this request with a new key."},
	interrupted:  {Status: http.StatusServiceUnavailable, TryAgain: true, Detail: "The request was interrupted. Use the same idempotency key when you send it again."},
	unavailable:  {Status: http.StatusServiceUnavailable, TryAgain: true, Detail: "The server cannot tell whether the request was carried out. Use the same idempotency key when you send it again."},
	fault:        {Status: http.StatusInternalServerError, Detail: admission.FaultDetail},
}

// reject writes the response to a request that failed with err, and logs what
// its operators should know.
func (m *Middleware) reject(w http.ResponseWriter, r *http.Request, err error) {
	why := reasonOf(err)
	m.logFailure(r, why, err)
	m.rejecter.Reject(w, r, m.withResponse(why, err))
}

// withResponse returns err with the response to why, where httpmw's own would
// be another. A KeyFunc of httpmw may have chosen a response already.
func (m *Middleware) withResponse(why reason, err error) error {
	response, ok := responses[why]
	if !ok {
		return err
	}
	if why == badKey {
		response.Detail = m.keyDetail
		if own := (*admission.Response)(nil); errors.As(err, &own) {
			response.Detail = own.Detail
		}
	}
	response.Err = err
	return &response
}

// logFailure logs a key with two payloads, and failures of which the client
// learns only that they are 500 or 503.
func (m *Middleware) logFailure(r *http.Request, why reason, err error) {
	ctx := context.WithoutCancel(r.Context())
	switch why {
	case otherPayload:
		m.log.WarnContext(ctx, "idempotency: rejected a request", "route", r.Pattern, "error", err)
	case fault, unavailable:
		m.log.ErrorContext(ctx, "idempotency: failed a request", "route", r.Pattern, "error", err)
	}
}

// reasonOf returns the reason of a request that failed with err.
func reasonOf(err error) reason {
	var key keyError
	switch {
	case errors.Is(err, httpmw.ErrInterrupted): // whatever the cause
		return interrupted
	case errors.As(err, &key): // before the limiter's errors: a KeyFunc may use a limiter, too
		return keyReason(key)
	case errors.Is(err, ratelimit.ErrBusy):
		return busy
	case errors.Is(err, errBadBody):
		return badBody
	case errors.Is(err, ErrBodyTooLarge):
		return tooLarge
	case errors.Is(err, ErrOtherPayload):
		return otherPayload
	case isFault(err):
		return fault
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ended
	default:
		return unavailable
	}
}

// isFault reports whether err is a mistake of the service, which a retry does
// not correct.
func isFault(err error) bool {
	for _, mistake := range []error{ErrResponseTooLarge, ErrTxUnusable, ErrNoRoute, ErrBodyConsumed, errShortIDs, errSwitched, errSetup} {
		if errors.Is(err, mistake) {
			return true
		}
	}
	return false
}

// A keyError is the error of a KeyFunc.
type keyError struct {
	error
	ended bool // it is the end of the request's own context
}

func (e keyError) Unwrap() error { return e.error }

// newKeyError returns err, of a KeyFunc of r, as a keyError.
func newKeyError(r *http.Request, err error) keyError {
	ended := r.Context().Err()
	return keyError{err, ended != nil && errors.Is(err, ended)}
}

// keyReason is reasonOf for the error of a KeyFunc.
func keyReason(err keyError) reason {
	switch {
	case err.ended:
		return ended
	case errors.Is(err, httpmw.ErrNoKey), errors.Is(err, ratelimit.ErrBadID):
		return badKey
	case errors.Is(err, sqllock.ErrUnavailable):
		return unavailable
	}
	return fault
}
