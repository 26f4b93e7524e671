// Package rejection lets a middleware choose the response that httpmw's
// Middleware.Reject writes for an error:
//
//	m.Reject(w, r, &rejection.Error{Err: err, Status: 422, Detail: "Send a new key."})
package rejection

// The details of responses that more than one package writes.
const (
	Ended = "The request ended while it waited for its turn."
	Fault = "The server failed to process the request. Its log says why. If this happens again, contact the people who run it."
	NoKey = "The request does not identify its user or resource." + CorrectIt

	// CorrectIt ends the detail of a mistake that the client can correct.
	CorrectIt = " Correct the request and send it again."
)

// An Error is an error together with the response to its request. It reads and
// matches as Err does.
type Error struct {
	Err      error
	Status   int
	Detail   string // for people; no part of it comes from the request
	TryAgain bool   // the same request may succeed later
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
