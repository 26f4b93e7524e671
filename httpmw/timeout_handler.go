package httpmw

import (
	"log/slog"
	"runtime"
)

const timeoutText = ": http.TimeoutHandler is inside of the middleware, so handlers overlap: put it outside"

// reportTimeoutHandler logs that http.TimeoutHandler is between the Middleware
// and the handler, if that is the one who writes the response. It returns while
// its own handler runs on, and so the lock is released too early.
func (w *heldWriter) reportTimeoutHandler() {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == "net/http.(*timeoutHandler).ServeHTTP" {
			w.m.gate.Report(w.r.Context(), w.r.Pattern, slog.LevelError, timeoutText,
				slog.String("namespace", string(w.m.levels[0].Limiter.Namespace())))
			return
		}
	}
}
