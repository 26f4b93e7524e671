package idempotency

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
)

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
		panic(fmt.Sprintf("idempotency: invalid status %d", status))
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write fails with ErrResponseTooLarge beyond the limit.
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) > w.limit-w.body.Len():
		w.overflow = true
		return 0, ErrResponseTooLarge
	}
	return w.body.Write(p)
}

// answer returns what the handler wrote. A handler that wrote nothing means 200,
// as in net/http, unless the reason interrupted is not nil: such a handler has
// most likely given up halfway.
func (w *recorder) response(interrupted error) (*storedResponse, error) {
	switch {
	case w.overflow:
		return nil, ErrResponseTooLarge
	case w.status == http.StatusSwitchingProtocols:
		return nil, errSwitched
	case w.status == 0 && interrupted != nil:
		return nil, fmt.Errorf("%w: %w", httpmw.ErrInterrupted, interrupted)
	}
	w.WriteHeader(http.StatusOK)
	return &storedResponse{status: w.status, header: w.sent, around: w.around, body: w.body.Bytes()}, nil
}
