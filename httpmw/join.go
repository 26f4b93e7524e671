package httpmw

import (
	"net/http"
	"slices"
	"strconv"
)

// Join makes one id of several, such as a tenant and a resource. Different parts
// never give the same id: each part goes in with its length in front, so that
// ("a:b", "c") is not ("a", "b:c"). All parts together count for the limit on
// an id's length ([ratelimit.WithMaxIDLen]), with two to five bytes for each
// length. It fails with the error of the first part that fails.
//
// It panics if there are no fs or one is nil.
func Join(fs ...KeyFunc) KeyFunc {
	if len(fs) == 0 {
		panic("httpmw: Join needs a KeyFunc at least")
	}
	fs = slices.Clone(fs)
	for _, f := range fs {
		if f == nil {
			panic("httpmw: Join needs KeyFuncs that are not nil")
		}
	}
	return func(r *http.Request) (string, error) {
		var array [128]byte
		id := array[:0]
		for _, f := range fs {
			part, err := f(r)
			if err != nil {
				return "", err
			}
			id = strconv.AppendInt(id, int64(len(part)), 10)
			id = append(id, ':')
			id = append(id, part...)
		}
		return string(id), nil
	}
}
