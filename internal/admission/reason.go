package admission

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Reason says why a request has no response of its handler. Each transport
// has a code for it.
type Reason uint8

const (
	Busy        Reason = iota // a limit is full
	BadKey                    // the request has no key, or a bad one
	Ended                     // the request's context ended before it was admitted
	Unavailable               // locks cannot be acquired
	Interrupted               // the handler ended with its context; it may have had effects
	Fault                     // a mistake of the server: a KeyFunc failed, or the policy of a limit

	Reasons = iota // how many there are

	Chosen Reason = iota // the error is a *Response
)

// ReasonOf returns the reason of a request that was not admitted because of err.
func ReasonOf(err error) Reason {
	var key KeyError
	switch {
	case isResponse(err):
		return Chosen
	case errors.As(err, &key): // before the limiter's errors: a KeyFunc may use a limiter, too
		return key.reason()
	case errors.Is(err, ratelimit.ErrBusy):
		return Busy
	case errors.Is(err, ratelimit.ErrPolicy):
		return Fault
	case errors.Is(err, ratelimit.ErrNoKey), errors.Is(err, ratelimit.ErrBadID):
		return BadKey
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Ended
	}
	return Unavailable
}

// A KeyError is the error of a KeyFunc.
type KeyError struct {
	error
	ended bool // it is the end of the request's own context
}

// KeyErrorOf returns err, of a KeyFunc for a request with ctx, as a KeyError.
func KeyErrorOf(ctx context.Context, err error) KeyError {
	ended := ctx.Err()
	return KeyError{err, ended != nil && errors.Is(err, ended)}
}

func (e KeyError) Unwrap() error { return e.error }

func (e KeyError) reason() Reason {
	switch {
	case e.ended:
		return Ended
	case isResponse(e.error):
		return Chosen
	case errors.Is(e, ratelimit.ErrNoKey), errors.Is(e, ratelimit.ErrBadID):
		return BadKey
	case errors.Is(e, sqllock.ErrUnavailable):
		return Unavailable
	}
	return Fault
}

// A Response is an error that chooses the response to its request. It reads and
// matches as Err does. An error that wraps a Response chooses nothing.
type Response struct {
	Err error

	// Of HTTP. In RPC, Err is the status.
	Status   int
	Detail   string // for people; no part of it comes from the request
	TryAgain bool   // the same request may succeed later
}

func (e *Response) Error() string { return e.Err.Error() }
func (e *Response) Unwrap() error { return e.Err }

func isResponse(err error) bool {
	_, ok := err.(*Response) //nolint:errorlint // see Response
	return ok
}

// The details of responses that more than one package writes.
const (
	EndedDetail = "The request ended while it waited for its turn."
	FaultDetail = "The server failed to process the request. Its log says why. If this happens again, contact the people who run it."
	NoKeyDetail = "The request does not identify its user or resource." + CorrectIt

	// CorrectIt ends the detail of a mistake that the client can correct.
	CorrectIt = " Correct the request and send it again."
)
