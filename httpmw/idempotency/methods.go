package idempotency

import (
	"errors"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
)

// keyUse reports whether a key counts for a method, and whether it is required.
//
//   - A safe method has no effect that could be repeated: a key means nothing.
//   - PUT and DELETE are idempotent by definition: a key may be given.
//   - Every other method needs a key, unless keys are optional.
func keyUse(method string) (counts, required bool) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false, false
	case http.MethodPut, http.MethodDelete:
		return true, false
	}
	return true, true
}

// keyOf returns the key of r. The error is httpmw.ErrBypass if r has none and
// needs none.
func (m *Middleware) keyOf(r *http.Request) (string, error) {
	counts, required := keyUse(r.Method)
	if !counts {
		return "", httpmw.ErrBypass
	}
	key, err := m.key(r)
	if err == nil && key == "" {
		err = httpmw.ErrNoKey
	}
	switch {
	case err == nil:
		return key, nil
	case errors.Is(err, httpmw.ErrNoKey) && (!required || m.keyOptional):
		return "", httpmw.ErrBypass
	}
	return "", newKeyError(r, err)
}
