package idempotency

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/latchkey-go/latchkey/httpmw"
)

// A recorder is a ResponseWriter that buffers the response until it may be
// sent. It has no Flush, Hijack or Unwrap, so that no byte can go around it.
type recorder struct {
	limit    int
	around   http.Header // the header before the handler
	header   http.Header // the header as the handler sees it
	sent     http.Header // the header when the response began; nil before
	status   int         // 0 before the response has begun
	body     bytes.Buffer
	overflow bool
}

// newRecorder returns a recorder whose header begins with around, which
// handlers around have set.
func newRecorder(limit int, around http.Header) *recorder {
	return &recorder{limit: limit, around: around.Clone(), header: around.Clone()}
}

func (w *recorder) Header() http.Header { return w.header }

// WriteHeader begins the response. Any other 1xx than 101 precedes the
// response, and is dropped.
func (w *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 { // as net/http does, but before the effect is committed
		panic(fmt.Sprintf("idempotency: invalid status %d", status))
	}
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status, w.sent = status, w.header.Clone()
	}
}

// Write buffers p. It fails with ErrResponseTooLarge beyond the limit.
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

// response returns what the handler wrote. A handler that wrote nothing means
// 200, as in net/http. If interrupted is not nil, such a handler has most
// likely given up halfway, and the error is httpmw.ErrInterrupted.
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
