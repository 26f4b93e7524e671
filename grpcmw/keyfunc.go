package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A KeyFunc returns the key that a call counts for, such as a user or a
// resource. Calls with equal keys exclude each other. ctx is the call's
// context. call.ReqOrNil is the request message; on a stream it is nil at
// first, see [ErrNeedMessage].
//
// A key must come from something that the client cannot choose, such as the
// identity that authentication has put into ctx. A client that may choose its
// key may choose that of a victim, and lock it out.
//
// The error of a KeyFunc decides what happens to the call:
//
//   - [ErrNoKey]: the call has no key. The status is INVALID_ARGUMENT.
//   - [ratelimit.ErrBadID]: the value cannot be a key. The status is
//     INVALID_ARGUMENT.
//   - [ErrBypass]: the call is not limited. Its handler runs without a lock.
//   - [sqllock.ErrUnavailable]: the key cannot be looked up now. The status is
//     UNAVAILABLE.
//   - An error that is or wraps a gRPC status, such as UNAUTHENTICATED: that
//     status.
//   - Any other error is a fault of the server. The status is INTERNAL.
//
// The error must not hold the key. The limiter's Observer gets it, and it is
// logged if it is ErrNoKey or a fault of the server. The client does not read
// its text, except that of a status.
//
// A KeyFunc must be safe for concurrent use.
type KeyFunc func(ctx context.Context, call interceptors.CallMeta) (string, error)

var (
	// ErrNoKey is what a KeyFunc returns for a call that has no key.
	ErrNoKey = errors.New("grpcmw: no key in the call")

	// ErrBypass is what a KeyFunc returns for a call that is not limited, such
	// as one of an administrator. Nothing is locked, and the Observer gets no
	// event.
	ErrBypass = errors.New("grpcmw: the call is not limited")

	// ErrNeedMessage is what a KeyFunc returns at the start of a stream, when
	// call.ReqOrNil is nil. The KeyFunc is called again with the first message.
	ErrNeedMessage = errors.New("grpcmw: the key is in the stream's first message")

	errRepeated  = fmt.Errorf("grpcmw: %w: it is in the call's metadata more than once", ratelimit.ErrBadID)
	errNoMessage = &rpclimit.MissingError{NoKey: ErrNoKey, Where: "the stream ended before its first message"}
)

// FromContext takes the key from the call's context, where an interceptor
// before this one has put it. The best key is the id of an authenticated user.
// f returns false, or an empty string, if there is none. The error is ErrNoKey
// then.
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

// Metadata takes the key from the entry called name of the call's metadata. Use
// it for entries that a trusted proxy sets, and strips from what clients send.
// The client chooses all other entries: never take a user's name from there.
//
// Without the entry, or with an empty value, the error is ErrNoKey, and its
// text holds the name. With more than one value it is [ratelimit.ErrBadID],
// since none of them can be trusted.
//
// Metadata panics if name is empty.
func Metadata(name string) KeyFunc {
	if name == "" {
		panic("grpcmw: Metadata needs a name")
	}
	missing := &rpclimit.MissingError{NoKey: ErrNoKey, Where: "metadata entry " + strconv.Quote(name) + " is missing or empty"}
	return func(ctx context.Context, _ interceptors.CallMeta) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		switch {
		case len(values) > 1:
			return "", errRepeated
		case len(values) == 0 || values[0] == "":
			return "", missing
		}
		return values[0], nil
	}
}
