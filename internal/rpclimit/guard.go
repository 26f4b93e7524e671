// Package rpclimit is what the packages grpcmw and connectmw share, beyond
// package admission: how a limit admits calls and streams, how the others end,
// and keys from fields of messages.
//
// It knows neither grpc-go nor connect-go. A program with one of them does not
// compile the other.
package rpclimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Guard limits the calls of a server. C is what the KeyFuncs of a transport
// get of a call.
type Guard[C any] struct {
	admission.Gate
	keys []func(ctx context.Context, call C) (string, error)

	// With returns the call of a stream with a message.
	With func(call C, message any) C

	// Own returns the status of the transport that err is or wraps, as an
	// error and its code. OK is none.
	Own func(err error) (code.Code, error)

	Domain   string // of ErrorInfo
	BusyText string // "" for the limit's name and size
	Conflict bool   // a busy key is ABORTED, and no quota
	All      bool   // limits health checks and reflection, too
}

// Init gives g its levels. It panics like [admission.Levels] on behalf of
// caller, of g.Package.
func Init[C any, L admission.Level[F], F ~func(context.Context, C) (string, error)](g *Guard[C], caller string, levels []L) {
	limiters, keys := admission.Levels(g.Package+": "+caller, levels)
	for _, key := range keys {
		g.keys = append(g.keys, key)
	}
	g.Limiters, g.Domain = limiters, "latchkey"
	g.Noun, g.Inside = "call", "interceptor after the authentication"
}

// Exempt reports whether calls of method, such as
// "/grpc.health.v1.Health/Check", are not limited. Balancers and tools make such
// calls, which do no work and carry no user. The service ends at the last slash,
// as in package grpc: a proxy forwards methods that clients make up.
func (g *Guard[C]) Exempt(method string) bool {
	service := strings.TrimPrefix(method, "/")
	switch service[:max(0, strings.LastIndexByte(service, '/'))] {
	case "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection":
		return !g.All
	}
	return false
}

// Unary limits a unary call. It returns the error of handler, or a *Status if
// the call was not admitted or was interrupted.
func (g *Guard[C]) Unary(ctx context.Context, method string, call C, handler func(context.Context) error) error {
	if g.Exempt(method) {
		return handler(ctx)
	}
	var r admission.Request
	var held admission.Held
	err := g.identify(ctx, method, call, ErrNeedMessage, &r)
	if err == nil {
		held, err = g.Acquire(ctx, method, &r, nil)
	}
	if err != nil {
		return g.rejection(ctx, err)
	}
	// Deferred, so that a panic releases the locks, too. The response is sent
	// after that, so the client's next call finds the keys free.
	defer func() { _ = held.Unlock() }() // a loss has ended the handler's context
	bound, cancel := held.Bind(ctx)
	defer cancel() // first, so that what the handler left behind ends before the lock
	return g.result(ctx, bound, &r, held, handler(bound))
}

// identify calls the KeyFuncs of a call. missing is the error if one needs the
// first message: [admission.ErrLater] at the start of a stream, and errNoMessage
// at its end. With a message it is ErrNeedMessage itself, a fault of the KeyFunc.
func (g *Guard[C]) identify(ctx context.Context, method string, call C, missing error, r *admission.Request) error {
	return g.Identify(ctx, method, r, func(level int) (string, error) {
		key, err := g.keys[level](ctx, call)
		if err == nil {
			return key, nil
		}
		if _, own := g.Own(err); own != nil {
			return "", &admission.Response{Err: own}
		}
		if ofHTTP, ok := err.(*admission.Response); ok { //nolint:errorlint // a KeyFunc of httpmw returns it as it is
			err = ofHTTP.Err
		}
		if errors.Is(err, ErrNeedMessage) {
			err = missing
		}
		return "", err
	})
}

// result returns how a call ends whose handler has returned err. That is a
// *Status if err is the end of ctx by one of held, the locks to which ctx is
// bound. Otherwise it is err:
//
//   - err is the handler's own, or
//   - ctx ended with around, the call's context outside of the locks. Then the
//     client has left, or the lock of an interceptor around has ended. That
//     interceptor chooses the status.
func (g *Guard[C]) result(around, ctx context.Context, r *admission.Request, held admission.Held, err error) error {
	if err == nil || ctx.Err() == nil { // Err compares the clock
		return err
	}
	cause := context.Cause(ctx)
	if around.Err() != nil && errors.Is(context.Cause(around), cause) {
		return err
	}
	chosen, own := g.Own(err)
	lost := errors.Is(err, sqllock.ErrLost)
	if own != nil && chosen != code.Code_CANCELLED && (chosen != code.Code_ABORTED || !lost) {
		return err
	}
	l := cmp.Or(r.EndedBy(ctx, held), g.Limiters[0])
	ends := own != nil && chosen == code.Code_CANCELLED || errors.Is(err, context.Canceled) || errors.Is(err, cause)
	switch {
	case errors.Is(cause, sqllock.ErrLost), errors.Is(cause, sqllock.ErrClosed):
		if ends || lost {
			return g.lost(l)
		}
	case errors.Is(cause, ratelimit.ErrMaxHold) && ends:
		text := "The call took longer than the limit " + strconv.Quote(string(l.Namespace())) + " allows."
		return &Status{Reason: admission.Interrupted, Code: code.Code_DEADLINE_EXCEEDED, Text: text}
	}
	return err
}

// FromContext returns a KeyFunc for the FromContext of pkg.
func FromContext[C any](pkg string, f func(context.Context) (string, bool)) func(context.Context, C) (string, error) {
	if f == nil {
		panic(pkg + ": FromContext needs a function that is not nil")
	}
	return func(ctx context.Context, _ C) (string, error) {
		if key, ok := f(ctx); ok && key != "" {
			return key, nil
		}
		return "", ratelimit.ErrNoKey
	}
}

// Entry returns a KeyFunc for what, such as "header", that is called name. values
// returns all its values.
func Entry[C any](what, name string, values func(context.Context, C) []string) func(context.Context, C) (string, error) {
	what += " " + strconv.Quote(name)
	missing := &told{ratelimit.ErrNoKey, what + " is missing or empty"}
	repeated := &told{ratelimit.ErrBadID, what + " is given more than once"}
	return func(ctx context.Context, call C) (string, error) {
		return admission.One(values(ctx, call), missing, repeated)
	}
}

// Join returns a KeyFunc for the Join of pkg.
func Join[C any, F ~func(context.Context, C) (string, error)](pkg string, fs []F) func(context.Context, C) (string, error) {
	if len(fs) == 0 || slices.ContainsFunc(fs, func(f F) bool { return f == nil }) {
		panic(pkg + ": Join needs KeyFuncs that are not nil")
	}
	fs = slices.Clone(fs)
	return func(ctx context.Context, call C) (string, error) {
		return admission.Join(len(fs), func(i int) (string, error) { return fs[i](ctx, call) })
	}
}
