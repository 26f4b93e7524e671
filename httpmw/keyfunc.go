package httpmw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/latchkey-go/latchkey/internal/rejection"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A KeyFunc finds the id that a request counts for, such as a user or a
// resource. All ids of one KeyFunc should be of one kind.
//
// Its error decides what happens to the request:
//
//   - [ErrNoKey]: the request has no id. The response is 400.
//   - [ratelimit.ErrBadID]: the value cannot be an id. The response is 400.
//   - [ErrBypass]: the request is not limited. Its handler runs without a lock.
//   - [sqllock.ErrUnavailable]: the id cannot be looked up now. The response is
//     503.
//   - Any other error is a fault of the server. The response is 500.
//
// The error must not hold the id: the error is logged if it is ErrNoKey, or a
// fault of the server. A KeyFunc must be safe for concurrent use.
//
// The id should come from an identity that the server has verified. [Header],
// [Cookie] and [Query] return what the client wrote. A client that guesses the
// value of another client takes its place. A client that invents a new value
// for each request is not limited at all. Use these functions for values that a
// trusted proxy sets, or that are verified before.
type KeyFunc func(*http.Request) (string, error)

var (
	// ErrNoKey reports that the request has no id where the KeyFunc looks for
	// it, or an empty one. The text says where the KeyFunc looked.
	ErrNoKey = errors.New("httpmw: no key in the request")

	// ErrBypass is what a KeyFunc returns for a request that is not limited,
	// such as one of an administrator. Nothing is locked, and the Observer gets
	// no event.
	ErrBypass = errors.New("httpmw: the request is not limited")
)

// errAmbiguous reports a value that is in a request twice. A proxy and this
// package may read such a request differently.
var errAmbiguous = fmt.Errorf("%w: it is given more than once", ratelimit.ErrBadID)

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

// FromContext takes the id from the request's context, where the authentication
// around the Middleware has put it. f reports whether it is there. FromContext
// panics if f is nil.
func FromContext(f func(context.Context) (string, bool)) KeyFunc {
	if f == nil {
		panic("httpmw: FromContext needs a func that is not nil")
	}
	missing := fmt.Errorf("%w: not in the context", ErrNoKey)
	return func(r *http.Request) (string, error) {
		id, ok := f(r.Context())
		if !ok || id == "" {
			return "", missing
		}
		return id, nil
	}
}

// Header takes the id from the header field called name. A field that is given
// twice is rejected. [KeyFunc] says which values to trust.
//
// Header("Host") is the host that the request is for, in lower case. It
// includes the port if the client sent one.
//
// Header panics if name is empty.
func Header(name string) KeyFunc {
	mustName("Header", name)
	one := oneOf("header " + name)
	if http.CanonicalHeaderKey(name) == "Host" { // net/http keeps it in r.Host
		return func(r *http.Request) (string, error) { return one([]string{strings.ToLower(r.Host)}) }
	}
	return func(r *http.Request) (string, error) { return one(r.Header.Values(name)) }
}

// Cookie takes the id from the cookie called name. A cookie that is given twice
// is rejected. [KeyFunc] says which values to trust. It panics if name is
// empty.
func Cookie(name string) KeyFunc {
	mustName("Cookie", name)
	one := oneOf("cookie " + name)
	return func(r *http.Request) (string, error) {
		var values []string
		for _, c := range r.CookiesNamed(name) {
			values = append(values, c.Value)
		}
		return one(values)
	}
}

// Query takes the id from the parameter called name of the request's URL. A
// parameter that is given twice is rejected, and so is a query that is
// malformed anywhere. [KeyFunc] says which values to trust. It panics if name
// is empty.
func Query(name string) KeyFunc {
	mustName("Query", name)
	one := oneOf("query parameter " + name)
	malformed := clientError(fmt.Errorf("httpmw: query parameter %s: %w: the query is malformed", name, ratelimit.ErrBadID),
		"The query of the request is malformed.")
	return func(r *http.Request) (string, error) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", malformed // err quotes the query
		}
		return one(values[name])
	}
}

// PathValue takes the id from the wildcard called name of the [http.ServeMux]
// pattern that matched. The mux sets it when it has matched, so the Middleware
// must be inside of the mux: around it there never is a key. PathValue panics
// if name is empty.
func PathValue(name string) KeyFunc {
	mustName("PathValue", name)
	missing := fmt.Errorf("%w: no path value %s: is the middleware inside of the mux?", ErrNoKey, name)
	return func(r *http.Request) (string, error) {
		if id := r.PathValue(name); id != "" {
			return id, nil
		}
		return "", missing
	}
}

// clientError returns err as a mistake of the client. The response says
// mistake, a sentence that holds nothing of the request.
func clientError(err error, mistake string) error {
	return &rejection.Error{Err: err, Status: http.StatusBadRequest, Detail: mistake + rejection.CorrectIt}
}

// oneOf returns a func that returns the value of a field that must be given
// exactly once.
func oneOf(what string) func(values []string) (string, error) {
	missing := clientError(fmt.Errorf("%w: no %s", ErrNoKey, what), "The request has no "+what+".")
	ambiguous := clientError(fmt.Errorf("httpmw: %s: %w", what, errAmbiguous), "The request has more than one "+what+".")
	return func(values []string) (string, error) {
		switch {
		case len(values) > 1:
			return "", ambiguous
		case len(values) == 0 || values[0] == "":
			return "", missing
		}
		return values[0], nil
	}
}

func mustName(caller, name string) {
	if name == "" {
		panic("httpmw: " + caller + " needs a name that is not empty")
	}
}
