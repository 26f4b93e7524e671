package grpcmw

import (
	"context"

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
//   - [ErrBadID]: the value cannot be a key. The status is
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

// Errors of a KeyFunc. The first three are those of package ratelimit, also in
// httpmw and connectmw.
var (
	// ErrNoKey is what a KeyFunc returns for a call that has no key.
	ErrNoKey = ratelimit.ErrNoKey

	// ErrBadID is what a KeyFunc returns for a value that cannot be a key.
	ErrBadID = ratelimit.ErrBadID

	// ErrBypass is what a KeyFunc returns for a call that is not limited, such
	// as one of an administrator. Nothing is locked, and the Observer gets no
	// event.
	ErrBypass = ratelimit.ErrBypass

	// ErrNeedMessage is what a KeyFunc returns at the start of a stream, when
	// call.ReqOrNil is nil. The KeyFunc is called again with the first message.
	// With a message this error is a fault of the server.
	ErrNeedMessage = rpclimit.ErrNeedMessage
)

// FromContext takes the key from the call's context, where an interceptor
// before this one has put it. The best key is the id of an authenticated user.
// f returns false, or an empty string, if there is none. The error is ErrNoKey
// then.
//
// FromContext panics if f is nil.
func FromContext(f func(context.Context) (string, bool)) KeyFunc {
	return rpclimit.FromContext[interceptors.CallMeta]("grpcmw", f)
}

// Metadata takes the key from the entry called name of the call's metadata. Use
// it for entries that a trusted proxy sets, and strips from what clients send.
// The client chooses all other entries: never take a user's name from there.
//
// Without the entry, or with an empty value, the error is ErrNoKey, and its
// text holds the name. With more than one value it is [ErrBadID],
// since none of them can be trusted.
//
// Metadata panics if name is empty.
func Metadata(name string) KeyFunc {
	if name == "" {
		panic("grpcmw: Metadata needs a name")
	}
	return rpclimit.Entry("metadata entry", name, func(ctx context.Context, _ interceptors.CallMeta) []string {
		return metadata.ValueFromIncomingContext(ctx, name)
	})
}

// Field takes the key from a field of the request message. The path has the
// names of the .proto file: "user.id" is field id of the message in field user.
// On a stream the first message counts.
//
// The field is a string, or an integer of any kind, whose decimal form is the
// key. For anything else write a KeyFunc. A field that is not set, or set to an
// empty string, is ErrNoKey, with the path in its text. So is a 0, unless the
// field is declared optional and set. A call whose message has no such field
// ends with INTERNAL, with a text that says so.
//
// The client chooses its message. A resource is a good key if the call was
// authorized for it before. A user's id in a message is not: see [KeyFunc].
//
// Field panics if path is not a list of protobuf names with dots between them.
func Field(path string) KeyFunc {
	return rpclimit.Field("grpcmw", path, func(call interceptors.CallMeta) any { return call.ReqOrNil })
}

// Join makes one key of several, such as a user and a resource. Different parts
// never give the same key. Each part is preceded by its length, so that ("a:b",
// "c") differs from ("a", "b:c").
//
// The error is that of the first part that fails. After an ErrNeedMessage all
// parts are called again with the first message. An empty part is ErrNoKey.
//
// Join panics if there are no fs, or one is nil.
func Join(fs ...KeyFunc) KeyFunc {
	return rpclimit.Join[interceptors.CallMeta]("grpcmw", fs)
}
