package idempotency

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/latchkey-go/latchkey/internal/admission"
)

// readBody reads the whole body of r. It fails with ErrBodyConsumed if a
// handler around has read a part of it before. A body that was read and
// restored is accepted, and so is one that was decompressed.
func (m *Middleware) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.MultipartForm != nil { // or MultipartReader was called
		return nil, ErrBodyConsumed
	}
	if body, ok := r.Body.(admission.Body); ok && body.Taken() { // of an httpmw.Middleware around
		return nil, ErrBodyConsumed
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, m.maxBody)); err != nil {
			return nil, readError(r, err)
		}
	}
	return body, consumed(r, body)
}

// readError returns the error of a body whose Read failed with err.
func readError(r *http.Request, err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge): // of this package, or of a limit around
		return ErrBodyTooLarge
	case errors.Is(err, http.ErrBodyReadAfterClose):
		return ErrBodyConsumed
	case r.Context().Err() != nil:
		return r.Context().Err()
	}
	return errBadBody
}

// consumed returns ErrBodyConsumed if body, which was read from r, lacks a part
// that was read before. It decides by what was read, since nothing else is
// reliable: a body may have no length, and a decompressed one has another
// length than the request says.
func consumed(r *http.Request, body []byte) error {
	short := int64(len(body)) < r.ContentLength
	switch {
	case short && isServers(admission.Beneath(r.Body)):
		return ErrBodyConsumed
	case len(bytes.TrimSpace(body)) > 0: // a decoder of JSON may leave white space
		return nil
	case short:
		return ErrBodyConsumed
	case r.ContentLength < 0:
		return errEmptyOrConsumed
	}
	return nil
}

// isServers reports whether body is net/http's own, which is as long as the
// request says. A handler around may have put another body in its place.
func isServers(body io.Reader) bool {
	t := reflect.TypeOf(body)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Name() == "maxBytesReader" {
		return false
	}
	path := t.Elem().PkgPath()
	return path == "net/http" || strings.HasPrefix(path, "net/http/internal/") || path == "golang.org/x/net/http2"
}
