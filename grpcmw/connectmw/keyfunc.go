package connectmw

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A Call is what a KeyFunc may look at in addition to its context. It must not change
// any of it.
type Call struct {
	Spec    connect.Spec // its Procedure is such as "/export.v1.ExportService/Export"
	Peer    connect.Peer
	Header  http.Header // of the request
	Message any         // the request message; on a stream nil at first, see [ErrNeedMessage]
}

// A KeyFunc returns the key that a call counts for, such as a user or a
// resource. Calls with equal keys exclude each other. ctx is the call's
// context.
//
// A key must come from something that the client cannot choose, such as the
// identity that authentication has put into ctx. A client that may choose its
// key may choose that of a victim, and lock it out.
//
// The error of a KeyFunc decides what happens to the call:
//
//   - [ErrNoKey]: the call has no key. The code is invalid_argument.
//   - [ErrBadID]: the value cannot be a key. The code is
//     invalid_argument.
//   - [ErrBypass]: the call is not limited. Its handler runs without a lock.
//   - [sqllock.ErrUnavailable]: the key cannot be looked up now. The code is
//     unavailable.
//   - An error that is or wraps a [*connect.Error], such as unauthenticated:
//     the call ends with that.
//   - Any other error is a fault of the server. The code is internal.
//
// The error must not hold the key. The limiter's Observer gets it, and it is
// logged if it is ErrNoKey or a fault of the server. The client does not read
// its text, except that of a *connect.Error.
//
// A KeyFunc must be safe for concurrent use.
type KeyFunc func(ctx context.Context, call Call) (string, error)

// Errors of a KeyFunc. The first three are those of package ratelimit, also in
// httpmw and grpcmw.
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
	// the call's Message is nil. The KeyFunc is called again with the first
	// message. With a message this error is a fault of the server.
	ErrNeedMessage = rpclimit.ErrNeedMessage
)

// FromContext takes the key from the call's context, where an interceptor
// before this one has put it, or a middleware of net/http. The best key is the
// id of an authenticated user. f returns false, or an empty string, if there is
// none. The error is ErrNoKey then.
//
// FromContext panics if f is nil.
func FromContext(f func(context.Context) (string, bool)) KeyFunc {
	return rpclimit.FromContext[Call]("connectmw", f)
}

// Header takes the key from the request header called name. Use it for headers
// that a trusted proxy sets, and strips from what clients send. The client
// chooses all other headers: never take a user's name from there.
//
// Without the header, or with an empty value, the error is ErrNoKey, and its
// text holds the name. With more than one value it is [ErrBadID],
// since none of them can be trusted.
//
// Header panics if name is empty.
func Header(name string) KeyFunc {
	if name == "" {
		panic("connectmw: Header needs a name")
	}
	return rpclimit.Entry("header", name, func(_ context.Context, call Call) []string { return call.Header.Values(name) })
}

// Field takes the key from a field of the request message. The path has the
// names of the .proto file: "user.id" is field id of the message in field user.
// On a stream the first message counts.
//
// The field is a string, or an integer of any kind, whose decimal form is the
// key. For anything else write a KeyFunc. A field that is not set, or set to an
// empty string, is ErrNoKey, with the path in its text. So is a 0, unless the
// field is declared optional and set. A call whose message has no such field
// ends with internal, with a text that says so.
//
// The client chooses its message. A resource is a good key if the call was
// authorized for it before. A user's id in a message is not: see [KeyFunc].
//
// Field panics if path is not a list of protobuf names with dots between them.
func Field(path string) KeyFunc {
	return rpclimit.Field("connectmw", path, func(call Call) any { return call.Message })
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
	return rpclimit.Join[Call]("connectmw", fs)
}
