package httpmw

import (
	"bufio"
	"net"
	"net/http"
)

// A beginningWriter notices whether a response was begun through it. The
// handler of WithRejectHandler gets one. The handler of an admitted request
// never does.
type beginningWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *beginningWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // other 1xx precede the response
		w.begun = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *beginningWriter) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}

// Unwrap, FlushError and Hijack are for http.ResponseController.

func (w *beginningWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError begins the response, unless w cannot flush.
func (w *beginningWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.begun = w.begun || err == nil
	return err
}

func (w *beginningWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.begun = w.begun || err == nil
	return conn, rw, err
}
