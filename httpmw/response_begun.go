package httpmw

import (
	"bufio"
	"net"
	"net/http"
)

// A noticingWriter notices whether an answer was begun through it. Only a
// refusal's handler gets one, never the handler of an admitted request.
type noticingWriter struct {
	http.ResponseWriter
	answered bool
}

func (w *noticingWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // others come before the answer
		w.answered = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *noticingWriter) Write(p []byte) (int, error) {
	w.answered = true
	return w.ResponseWriter.Write(p)
}

// Unwrap, FlushError and Hijack are for http.ResponseController.

func (w *noticingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *noticingWriter) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.answered = w.answered || err == nil // else it cannot flush, and has not
	return err
}

func (w *noticingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.answered = w.answered || err == nil
	return conn, rw, err
}
