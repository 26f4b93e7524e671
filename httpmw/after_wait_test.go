package httpmw_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/latchkey-go/latchkey/internal/httptesting"
)

// A handler that takes the connection over after a wait gets the body that was
// read before it, and what follows.
func TestHijackAfterWaiting(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 1)
		_, _ = io.ReadFull(r.Body, first)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		buffered := rw.Reader.Buffered()
		rest := make([]byte, len("ody and more"))
		_, err = io.ReadFull(rw, rest)
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s%s %v %v", first, rest, buffered >= len("ody"), err)
	})
	conn := l.wait(t, post("Content-Length: 4")+"body")
	close(l.leave)
	httptesting.Receive(t, l.entered, "request")
	transmit(t, conn, " and more")
	if r := response(t, conn); r.Text != "body and more true <nil>" {
		t.Errorf("got %q", r.Text)
	}
}

// A closed body returns nothing more, also if it was read before the wait.
func TestReadAfterCloseAfterWaiting(t *testing.T) {
	t.Parallel()
	l := newLine(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		n, err := r.Body.Read(make([]byte, 10))
		_, _ = fmt.Fprint(w, n, errors.Is(err, http.ErrBodyReadAfterClose))
	})
	conn := l.wait(t, post("Content-Length: 4")+"body")
	close(l.leave)
	if r := response(t, conn); r.Text != "0 true" {
		t.Errorf("got %q", r.Text)
	}
}
