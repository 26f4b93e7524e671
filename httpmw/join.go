package httpmw

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/latchkey-go/latchkey/internal/joinkey"
)

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
	if len(fs) == 0 {
		panic("httpmw: Join needs at least one KeyFunc")
	}
	fs = slices.Clone(fs)
	for _, f := range fs {
		if f == nil {
			panic("httpmw: Join needs KeyFuncs that are not nil")
		}
	}
	empty := fmt.Errorf("%w: a part of it is empty", ErrNoKey)
	return func(r *http.Request) (string, error) {
		var array [128]byte
		id := array[:0]
		for _, f := range fs {
			part, err := f(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", empty
			}
			id = joinkey.Append(id, part)
		}
		return string(id), nil
	}
}
