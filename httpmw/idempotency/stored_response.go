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

// A storedResponse is the answer of a handler, to be stored, or stored before.
type storedResponse struct {
	fingerprint []byte // of a stored one: what it is the answer to
	status      int
	header      http.Header
	removed     http.Header // fields that the handler has removed; of a stored one
	body        []byte
	replayed    bool

	around http.Header // what others had set before the handler; of one that is not replayed
}

// to is a as the answer to p.
func (a *storedResponse) to(p payload) (*storedResponse, error) {
	switch {
	case !bytes.Equal(a.fingerprint, p.fingerprint[:]):
		return nil, ErrOtherPayload
	case a.status == 0:
		return nil, errNoAnswer
	}
	return a, nil
}

// noValues marks a removed field that the handler has left without values. net/http
// then adds none of its own, as it does for Content-Type and Date.
const noValues = "none"

// encodeHeader returns what is stored of a's header: the fields that the handler
// has set or added to, as they are sent. After an empty line follow the names of
// the fields that it has removed, if there are any.
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

// decodeHeader sets what encodeHeader has returned.
func (a *storedResponse) decodeHeader(encoded []byte) error {
	lines := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(encoded, "\r\n"...))))
	set, err := lines.ReadMIMEHeader()
	if err != nil {
		return err
	}
	a.header = http.Header(set)
	removed, err := lines.ReadMIMEHeader()
	if errors.Is(err, io.EOF) { // there are none
		return nil
	}
	a.removed = http.Header(removed)
	return err
}

// send writes a. A field that others have set on w gives way if the handler has
// removed it or has set it too.
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
		maps.DeleteFunc(h, isTrailer) // with what they announce long gone
	}
	h.Del("Content-Length")
	if bodyAllowed(a.status) {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that has gone asks again
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// notStored are header fields of one connection or one moment, or too secret to lie
// in a table.
var notStored = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Set-Cookie",
	"Te", "Transfer-Encoding", "Upgrade",
}

// isTrailer reports whether a field is for after the body, where nothing is sent.
func isTrailer(name string, _ []string) bool {
	return name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix)
}

// isStored reports whether a field belongs to the response and not to its moment.
func isStored(name string) bool {
	return !slices.Contains(notStored, http.CanonicalHeaderKey(name)) && !isTrailer(name, nil)
}

// hasControl reports whether value could not be read again.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return (c < ' ' && c != '\t') || c == '\x7f' })
}
