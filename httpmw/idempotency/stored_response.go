package idempotency

import (
	"bufio"
	"bytes"
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

// encodeHeader returns what is stored of a's header: the fields that the
// handler has set or added to, as they are sent.
func (a *storedResponse) encodeHeader() []byte {
	set := make(http.Header)
	for name, values := range a.header {
		if !isTrailer(name, nil) && isStored(name) && !slices.Equal(values, a.around[name]) {
			set[name] = slices.DeleteFunc(slices.Clone(values), hasControl)
		}
	}
	var b bytes.Buffer
	_ = set.Write(&b) // leaves out names that cannot be sent; a Buffer does not fail
	return b.Bytes()
}

// decodeHeader sets header to what encodeHeader has encoded. It ignores what
// earlier releases wrote behind an empty line.
func (a *storedResponse) decodeHeader(encoded []byte) error {
	set, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(encoded, "\r\n"...)))).ReadMIMEHeader()
	a.header = http.Header(set)
	return err
}

// send writes a to w. A field that handlers around have set on w gives way if
// the handler has set it too, and in a fresh response if it has removed it.
func (a *storedResponse) send(w http.ResponseWriter) {
	h := w.Header()
	if a.replayed {
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
func isStored(name string) bool { return !slices.Contains(notStored, http.CanonicalHeaderKey(name)) }

// hasControl reports whether value holds a control character, with which it
// could not be decoded. Line breaks are sent as spaces.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && !strings.ContainsRune("\t\r\n", c) || c == '\x7f' })
}
