package httpmw

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A Level is a limit that counts for a request, and how to find the id that the
// request counts for.
type Level struct {
	Limiter *ratelimit.Limiter
	Key     KeyFunc
}

// NewStack returns a Middleware that admits a request if it gets a place on each
// of levels. An example is a place of its user, one of its tenant and one of the
// total. The request gets all places or none, in one round trip
// ([ratelimit.AcquireAll]).
//
// The KeyFuncs are called in order, each once, before the first place is taken.
// The error of one decides as with [New], and the later ones are not called.
// [ErrBypass] means that this level does not limit the request. The other levels
// do. If all levels are bypassed, the request is not limited.
//
// If a level is full, the response names that level and has its Retry-After. If
// several are full, it names the first. Requests that wait take turns by the id
// of the first level. So the first level is mostly the narrowest, such as that of
// the user.
//
// The loss of one lock ends the handler's context like the loss of all. In the
// handler [sqllock.FromContext] returns the lock of the last level, and with
// keys the lock of any.
//
// NewStack panics if there are no levels, or a Limiter or Key is nil.
func NewStack(levels []Level, opts ...Option) *Middleware {
	return newMiddleware("NewStack", levels, opts)
}

// newMiddleware makes the Middleware of levels. caller is for panics.
func newMiddleware(caller string, levels []Level, opts []Option) *Middleware {
	m := &Middleware{levels: slices.Clone(levels), problemType: blankType}
	m.gate.Limiters, _ = admission.Levels("httpmw: "+caller, levels)
	m.gate.Package, m.gate.Noun, m.gate.Route = "httpmw", "request", "route"
	m.gate.Inside = "middleware inside of the authentication and of the router"
	for _, opt := range opts {
		opt(m)
	}
	return m
}
