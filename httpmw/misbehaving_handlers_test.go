package httpmw_test

import (
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"io"
	"net/http"
	"runtime"
)

// A misbehavior is what a handler does while its request holds the lock.
type misbehavior struct {
	path  string // empty, or timeoutPath
	http1 bool   // HTTP/2 has no such thing
	do    func(*handlerCall, http.ResponseWriter, *http.Request)
}

// timeoutPath is the path of handlers inside an http.TimeoutHandler.
const timeoutPath = "/timeout"

// The first two entries of misbehaviors are handlers that behave well.
const (
	responds = iota
	waits
)

var misbehaviors = []misbehavior{
	responds: {do: func(_ *handlerCall, w http.ResponseWriter, _ *http.Request) { writePart(w) }},
	waits:    {do: func(c *handlerCall, _ http.ResponseWriter, r *http.Request) { httptesting.Stay(r.Context(), c.leave) }},
	{do: func(*handlerCall, http.ResponseWriter, *http.Request) { panic("a bug in a handler") }},
	{do: func(*handlerCall, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{do: func(_ *handlerCall, w http.ResponseWriter, _ *http.Request) {
		writePart(w)
		panic("a bug in the middle of a response")
	}},
	{do: func(*handlerCall, http.ResponseWriter, *http.Request) { runtime.Goexit() }},
	{do: func(_ *handlerCall, w http.ResponseWriter, _ *http.Request) {
		writePart(w)
		runtime.Goexit()
	}},
	{http1: true, do: func(_ *handlerCall, w http.ResponseWriter, _ *http.Request) { hijackAndClose(w) }},
	{http1: true, do: func(_ *handlerCall, w http.ResponseWriter, _ *http.Request) {
		hijackAndClose(w)
		panic("a bug after the handler took the connection over")
	}},
	{do: outliveClient},
	{do: func(c *handlerCall, w http.ResponseWriter, r *http.Request) {
		outliveClient(c, w, r)
		panic("a bug after the client has gone")
	}},
	{path: timeoutPath, do: outlastTimeout},
	{path: timeoutPath, do: func(c *handlerCall, w http.ResponseWriter, r *http.Request) {
		outlastTimeout(c, w, r)
		panic("a bug after the timeout")
	}},
	{path: timeoutPath, do: func(*handlerCall, http.ResponseWriter, *http.Request) { panic("a bug before the timeout") }},
	{path: timeoutPath, do: func(*handlerCall, http.ResponseWriter, *http.Request) { runtime.Goexit() }},
}

// writePart sends a part of a response.
func writePart(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "part")
	_ = http.NewResponseController(w).Flush()
}

// hijackAndClose takes the connection from net/http and closes it.
func hijackAndClose(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

// outliveClient lets the client go away and waits until the server notices.
func outliveClient(c *handlerCall, _ http.ResponseWriter, r *http.Request) {
	c.hangUp()
	<-r.Context().Done()
}

// outlastTimeout waits until TimeoutHandler has responded in the handler's place.
func outlastTimeout(_ *handlerCall, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
