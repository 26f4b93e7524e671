package idempotency

import (
	"net/http"
	"slices"
)

// A disposition says what happens to a handler's effect and response.
type disposition uint8

const (
	discarded disposition = iota // both are dropped
	stored                       // the effect is rolled back, the response stored
	committed                    // the effect is committed, the response stored
)

// neverStored are the statuses that report an interruption or a state of the
// connection, and nothing about the request. A stored one would be the response
// for ever.
var neverStored = []int{
	http.StatusMisdirectedRequest,
	444, // nginx: closed without a response
	449, // Microsoft: retry with
	460, // AWS: the client has left
	499, // nginx, grpc-gateway: the client has left
}

// disposition decides about a response that the handler wrote. interrupted
// reports whether the handler's context had ended by then. An error may be due
// to that alone.
func (m *Middleware) disposition(status int, interrupted bool) disposition {
	switch {
	case status < 400:
		return committed
	case interrupted, slices.Contains(neverStored, status), !m.storeError(status):
		return discarded
	}
	return stored
}

// storePaymentRequired is the default of [WithStoredErrors].
func storePaymentRequired(status int) bool { return status == http.StatusPaymentRequired }
