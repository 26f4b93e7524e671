package httpmw

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// A storedAnswer is the answer of a handler, to be stored, or stored before.
type storedAnswer struct {
	fingerprint []byte // of a stored one: what it is the answer to
	status      int
	header      http.Header
	removed     http.Header // fields that the handler has removed; of a stored one
	body        []byte
	replayed    bool

	around http.Header // what others had set before the handler; of one that is not replayed
}

// to is a as the answer to p.
func (a *storedAnswer) to(p payload) (*storedAnswer, error) {
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
func (a *storedAnswer) encodeHeader() []byte {
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
func (a *storedAnswer) decodeHeader(encoded []byte) error {
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
func (a *storedAnswer) send(w http.ResponseWriter) {
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

// A recorder is the ResponseWriter that keeps an answer until it may be sent. It has
// no Flush, Hijack or Unwrap on purpose: there is no way around it.
type recorder struct {
	limit    int
	around   http.Header // as it was before the handler
	header   http.Header // as the handler sees it
	sent     http.Header // as it was when the answer began; nil before
	status   int         // 0 before
	body     bytes.Buffer
	overflow bool
}

// newRecorder begins with what others have set, to which the handler may add.
func newRecorder(limit int, around http.Header) *recorder {
	return &recorder{limit: limit, around: around.Clone(), header: around.Clone()}
}

func (w *recorder) Header() http.Header { return w.header }

// WriteHeader begins the answer. 1xx come before it, and are dropped. 101 is an answer.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 { // as net/http does, and here, not when the effect is committed
		panic(fmt.Sprintf("httpmw: invalid status %d", status))
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write fails with ErrAnswerTooLarge beyond the limit.
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) > w.limit-w.body.Len():
		w.overflow = true
		return 0, ErrAnswerTooLarge
	}
	return w.body.Write(p)
}

// answer returns what the handler wrote. A handler that wrote nothing means 200,
// as in net/http, unless the reason interrupted is not nil: such a handler has
// most likely given up halfway.
func (w *recorder) answer(interrupted error) (*storedAnswer, error) {
	switch {
	case w.overflow:
		return nil, ErrAnswerTooLarge
	case w.status == http.StatusSwitchingProtocols:
		return nil, errSwitched
	case w.status == 0 && interrupted != nil:
		return nil, interruption{interrupted}
	}
	w.WriteHeader(http.StatusOK)
	return &storedAnswer{status: w.status, header: w.sent, around: w.around, body: w.body.Bytes()}, nil
}
