package grpcmw

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
)

// Field takes the key from a field of the request message. The path has the
// names of the .proto file: "user.id" is field id of the message in field user.
// On a stream the first message counts.
//
// The field is a string, or an integer of any kind, whose decimal form is the
// key. For anything else write a KeyFunc. A field that is not set, or set to an
// empty string, is ErrNoKey, with the path in its text. So is a 0, unless the
// field is declared optional and set. A call whose message has no such field
// ends with INVALID_ARGUMENT, with a text that says so.
//
// The client chooses its message. A resource is a good key if the call was
// authorized for it before. A user's id in a message is not: see [KeyFunc].
//
// Field panics if path is not a list of protobuf names with dots between them.
func Field(path string) KeyFunc {
	field := rpclimit.NewField("grpcmw", ErrNoKey, path)
	return func(_ context.Context, call interceptors.CallMeta) (string, error) {
		switch {
		case call.ReqOrNil != nil:
			return field.Key(call.ReqOrNil)
		case call.Typ == interceptors.Unary:
			return "", field.Missing(": the call has no message")
		}
		return "", ErrNeedMessage
	}
}
