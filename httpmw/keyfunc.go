package httpmw

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A KeyFunc finds the id that a request counts for, such as a user or a
// resource. All ids of one KeyFunc should be of one kind.
//
// Its error decides what happens to the request:
//
//   - [ErrNoKey]: the request has no id. The response is 400.
//   - [ErrBadID]: the value cannot be an id. The response is 400.
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

// Errors of a KeyFunc. They are those of package ratelimit, also in grpcmw and
// connectmw.
var (
	// ErrNoKey reports that the request has no id where the KeyFunc looks for
	// it, or an empty one. The text says where the KeyFunc looked.
	ErrNoKey = ratelimit.ErrNoKey

	// ErrBadID reports that the value cannot be an id.
	ErrBadID = ratelimit.ErrBadID

	// ErrBypass is what a KeyFunc returns for a request that is not limited,
	// such as one of an administrator. Nothing is locked, and the Observer gets
	// no event.
	ErrBypass = ratelimit.ErrBypass
)

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
	malformed := clientError(fmt.Errorf("%w: the query is malformed", ErrBadID), "The query of the request is malformed.")
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

// Join makes one id of several, such as a tenant and a resource. Different
// parts never give the same id. Each part is preceded by its length, so that
// ("a:b", "c") differs from ("a", "b:c").
//
// All parts together count for the limit on an id's length
// ([ratelimit.WithMaxIDLen]), with two to five bytes for each length. The error
// is that of the first part that fails. An empty part is [ErrNoKey].
//
// Join panics if there are no fs, or one is nil.
func Join(fs ...KeyFunc) KeyFunc {
	if len(fs) == 0 || slices.ContainsFunc(fs, func(f KeyFunc) bool { return f == nil }) {
		panic("httpmw: Join needs KeyFuncs that are not nil")
	}
	fs = slices.Clone(fs)
	return func(r *http.Request) (string, error) {
		return admission.Join(len(fs), func(i int) (string, error) { return fs[i](r) })
	}
}

// clientError returns err as a mistake of the client. The response says
// mistake, a sentence that holds nothing of the request.
func clientError(err error, mistake string) error {
	return &admission.Response{Err: err, Status: http.StatusBadRequest, Detail: mistake + admission.CorrectIt}
}

// oneOf returns a func that returns the value of a field that must be given
// exactly once. A proxy and this package may read another one differently.
func oneOf(what string) func(values []string) (string, error) {
	missing := clientError(fmt.Errorf("%w: no %s", ErrNoKey, what), "The request has no "+what+".")
	repeated := clientError(fmt.Errorf("%w: more than one %s", ErrBadID, what), "The request has more than one "+what+".")
	return func(values []string) (string, error) { return admission.One(values, missing, repeated) }
}

func mustName(caller, name string) {
	if name == "" {
		panic("httpmw: " + caller + " needs a name that is not empty")
	}
}
