package idempotency

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// readBody reads the whole body of r. It fails with ErrBodyConsumed if a
// handler around has read all of it before. A body that was read and restored is
// accepted, and so is one that was decompressed. A part that was read before is
// not noticed: docs/decisions/0051 says why.
func (m *Middleware) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.MultipartForm != nil { // or MultipartReader was called
		return nil, ErrBodyConsumed
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, m.maxBody)); err != nil {
			return nil, readError(r, err)
		}
	}
	switch {
	case len(bytes.TrimSpace(body)) > 0: // a decoder of JSON may leave white space
		return body, nil
	case r.ContentLength < 0:
		return nil, errEmptyOrConsumed
	case int64(len(body)) < r.ContentLength:
		return nil, ErrBodyConsumed
	}
	return body, nil
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
