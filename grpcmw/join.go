package grpcmw

import (
	"context"
	"slices"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"

	"github.com/latchkey-go/latchkey/internal/joinkey"
)

// Join makes one key of several, such as a user and a resource. Different parts
// never give the same key. Each part is preceded by its length, so that ("a:b",
// "c") differs from ("a", "b:c").
//
// The error is that of the first part that fails. After an ErrNeedMessage all
// parts are called again with the first message. An empty part is ErrNoKey.
//
// Join panics if there are no fs, or one is nil.
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
