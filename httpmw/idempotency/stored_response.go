package idempotency

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// A storedResponse is the response of a handler. It is fresh, or it was stored
// by an earlier request and is replayed.
type storedResponse struct {
	status   int
	header   http.Header
	body     []byte
	replayed bool

	fingerprint []byte      // of the payload that it is the response to; only if replayed
	removed     http.Header // fields that the handler has removed; only if replayed
	around      http.Header // the header before the handler; only if fresh
}

// to returns a as the response to p, or fails if p is another payload.
func (a *storedResponse) to(p payload) (*storedResponse, error) {
	switch {
	case !bytes.Equal(a.fingerprint, p.fingerprint[:]):
		return nil, ErrOtherPayload
	case a.status == 0:
		return nil, errNoResponse
	}
	return a, nil
}

// noValues marks a removed field that the handler has left without values. It
// keeps net/http from adding a value of its own, as it does for Content-Type
// and Date.
const noValues = "none"

// encodeHeader returns what is stored of a's header: the fields that the
// handler has set or added to, as they are sent. If the handler has removed
// fields, their names follow after an empty line.
func (a *storedResponse) encodeHeader() []byte {
	set, removed := make(http.Header, len(a.header)), make(http.Header)
	for name, values := range a.header {
		if !slices.Equal(values, a.around[name]) && isStored(name) {
			set[name] = slices.DeleteFunc(slices.Clone(values), hasControl)
		}
	}
	for name, values := range a.around {
		now := a.header[name]
		if len(set[name]) == 0 && !slices.Equal(now[:min(len(now), len(values))], values) {
			removed[name] = []string{""}
		}
	}
	for name, values := range a.header {
		if len(values) == 0 && !isTrailer(name, nil) {
			removed[name] = []string{noValues}
		}
	}
	var b bytes.Buffer
	_ = set.Write(&b) // leaves out names that cannot be sent; a Buffer does not fail
	if len(removed) > 0 {
		b.WriteString("\r\n")
		_ = removed.Write(&b)
	}
	return b.Bytes()
}

// decodeHeader sets header and removed to what encodeHeader has encoded.
func (a *storedResponse) decodeHeader(encoded []byte) error {
	lines := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(encoded, "\r\n"...))))
	set, err := lines.ReadMIMEHeader()
	if err != nil {
		return err
	}
	a.header = http.Header(set)
	removed, err := lines.ReadMIMEHeader()
	if errors.Is(err, io.EOF) { // no field was removed
		return nil
	}
	a.removed = http.Header(removed)
	return err
}

// send writes a to w. A field that handlers around have set on w gives way if
// the handler has removed it, or has set it too.
func (a *storedResponse) send(w http.ResponseWriter) {
	h := w.Header()
	if a.replayed {
		maps.DeleteFunc(h, func(name string, _ []string) bool {
			return len(a.removed.Values(name)) > 0
		})
		for name, values := range a.removed {
			if values[0] == noValues {
				h[name] = nil
			}
		}
		maps.Copy(h, a.header)
		h.Set("Idempotency-Replayed", "true")
	} else {
		clear(h)
		maps.Copy(h, a.header)
		maps.DeleteFunc(h, isTrailer) // trailers are not sent
	}
	h.Del("Content-Length")
	if bodyAllowed(a.status) {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that has left sends the request again
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// notStored are header fields of one connection or one moment, and fields that
// are too secret for a table.
var notStored = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Set-Cookie",
	"Te", "Transfer-Encoding", "Upgrade",
}

// isTrailer reports whether a field is for the trailer, which is not sent.
func isTrailer(name string, _ []string) bool {
	return name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix)
}

// isStored reports whether the field belongs to a stored response.
func isStored(name string) bool {
	return !slices.Contains(notStored, http.CanonicalHeaderKey(name)) && !isTrailer(name, nil)
}

// hasControl reports whether value holds a control character, with which it
// could not be decoded.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return (c < ' ' && c != '\t') || c == '\x7f' })
}
