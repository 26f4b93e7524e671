package grpcmw

import (
	"context"
	"errors"
	"fmt"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// A KeyFunc says whose call this is: calls with equal keys exclude each other.
// call.ReqOrNil is the request message; on a stream it is nil at first, see
// [ErrNeedMessage]. ctx is the call's context.
//
// A key must come from something the caller cannot choose, such as the identity
// that authentication has put into ctx. Who may choose a key may also choose a
// victim's, and lock it out.
//
// When a KeyFunc fails, the call is refused: with the gRPC status that the error is
// or wraps, if there is one (UNAUTHENTICATED, say), else with INVALID_ARGUMENT. The
// text of neither the error nor what wraps its status goes to the client. The limiter's Observer is told the error as it is: it
// should not hold the key.
type KeyFunc func(ctx context.Context, call interceptors.CallMeta) (string, error)

var (
	// ErrNoKey is what a KeyFunc answers for a call that has no key.
	ErrNoKey = errors.New("grpcmw: no key in the call")

	// ErrNeedMessage is what a KeyFunc answers at the start of a stream, when
	// call.ReqOrNil is nil, to be asked again with the first message in it.
	ErrNeedMessage = errors.New("grpcmw: the key is in the stream's first message")

	errRepeated = fmt.Errorf("grpcmw: %w: it is in the call's metadata more than once", ratelimit.ErrBadID)
)

// FromContext takes the key from the call's context, where an interceptor before
// this one has put it: an authenticated user's id, best of all. f answers false,
// or an empty string, if there is none: the error is then ErrNoKey.
//
// FromContext panics if f is nil.
func FromContext(f func(context.Context) (string, bool)) KeyFunc {
	if f == nil {
		panic("grpcmw: FromContext needs a function that is not nil")
	}
	return func(ctx context.Context, _ interceptors.CallMeta) (string, error) {
		if key, ok := f(ctx); ok && key != "" {
			return key, nil
		}
		return "", ErrNoKey
	}
}

// Metadata takes the key from the call's metadata: for names that a trusted
// proxy sets and strips from what clients send, and for idempotency keys in a
// [Join] with the user. The client chooses all other metadata, and with it whom
// to lock out: never take a user's name from there.
//
// Without the name, or with an empty value, the error is ErrNoKey. If it is
// there more than once the error is [ratelimit.ErrBadID]: neither value can be
// trusted.
//
// Metadata panics if name is empty.
func Metadata(name string) KeyFunc {
	if name == "" {
		panic("grpcmw: Metadata needs a name")
	}
	return func(ctx context.Context, _ interceptors.CallMeta) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		switch {
		case len(values) > 1:
			return "", errRepeated
		case len(values) == 0 || values[0] == "":
			return "", ErrNoKey
		}
		return values[0], nil
	}
}
