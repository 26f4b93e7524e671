package grpcmw

import (
	"context"
	"slices"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"

	"github.com/latchkey-go/latchkey/internal/joinkey"
)

// Join makes one key of several, such as a user and a resource. Different parts
// never give the same key: ("a:b", "c") and ("a", "b:c") differ, as each part
// goes in with its length.
//
// The first error of a part is the error: an ErrNeedMessage has the whole key
// asked for again with the first message. A part that is empty is ErrNoKey.
//
// Join panics without parts, or if one is nil.
func Join(fs ...KeyFunc) KeyFunc {
	if len(fs) == 0 || slices.ContainsFunc(fs, func(f KeyFunc) bool { return f == nil }) {
		panic("grpcmw: Join needs KeyFuncs that are not nil")
	}
	fs = slices.Clone(fs)
	return func(ctx context.Context, call interceptors.CallMeta) (string, error) {
		var joined []byte
		for _, f := range fs {
			part, err := f(ctx, call)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", ErrNoKey
			}
			joined = joinkey.Append(joined, part)
		}
		return string(joined), nil
	}
}
