package nemesis

import (
	"io"
	"net/http"
	"runtime"
)

// A misdeed is what a handler does under its lock.
type misdeed struct {
	path  string // "" or timedOut
	http1 bool   // it cannot be done with HTTP/2
	do    func(*call, http.ResponseWriter, *http.Request)
}

// Two that are none.
const (
	answers = iota
	waits
)

var misdeeds = []misdeed{
	answers: {do: func(_ *call, w http.ResponseWriter, _ *http.Request) { part(w) }},
	waits:   {do: func(c *call, _ http.ResponseWriter, _ *http.Request) { <-c.leave }},
	{do: func(*call, http.ResponseWriter, *http.Request) { panic("a handler's mistake") }},
	{do: func(*call, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{do: func(_ *call, w http.ResponseWriter, _ *http.Request) {
		part(w)
		panic("a mistake in the middle of an answer")
	}},
	{do: func(*call, http.ResponseWriter, *http.Request) { runtime.Goexit() }},
	{do: func(_ *call, w http.ResponseWriter, _ *http.Request) {
		part(w)
		runtime.Goexit()
	}},
	{http1: true, do: func(_ *call, w http.ResponseWriter, _ *http.Request) { hijack(w) }},
	{http1: true, do: func(_ *call, w http.ResponseWriter, _ *http.Request) {
		hijack(w)
		panic("a mistake after the connection was taken over")
	}},
	{do: outliveClient},
	{do: func(c *call, w http.ResponseWriter, r *http.Request) {
		outliveClient(c, w, r)
		panic("a mistake when the client has gone")
	}},
	{path: timedOut, do: outlastTime},
	{path: timedOut, do: func(c *call, w http.ResponseWriter, r *http.Request) {
		outlastTime(c, w, r)
		panic("a mistake that nobody sees")
	}},
	{path: timedOut, do: func(*call, http.ResponseWriter, *http.Request) { panic("a mistake in time") }},
	{path: timedOut, do: func(*call, http.ResponseWriter, *http.Request) { runtime.Goexit() }},
}

// part sends a part of an answer.
func part(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "part")
	_ = http.NewResponseController(w).Flush()
}

// hijack takes the connection from net/http, and ends it.
func hijack(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

// outliveClient has the client go away, and waits until the server has noticed.
func outliveClient(c *call, _ http.ResponseWriter, r *http.Request) {
	c.hangUp()
	<-r.Context().Done()
}

// outlastTime waits until the client has been answered in the handler's place.
func outlastTime(_ *call, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
