package httpmw

import (
	"log/slog"
	"net/http"
)

// Mistakes in how a server is wired, for the log.
const (
	noKeyText  = "httpmw: a request has no key: is the middleware inside of the authentication and of the router?"
	twiceText  = "httpmw: a request needs two places of one limit: is the limit on its road twice?"
	failedText = "httpmw: a KeyFunc failed"
)

// reportNoKey logs that r has no key.
func (m *Middleware) reportNoKey(r *http.Request, err error) {
	m.report(r, slog.LevelWarn, noKeyText, slog.Any("error", err))
}

// report logs text about r's route. A pattern is not an id; the URL may hold
// one.
func (m *Middleware) report(r *http.Request, level slog.Level, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("namespace", string(m.limiter.Namespace())))
	m.reports.Log(r.Context(), m.log, level, text, slog.String("route", r.Pattern), attrs...)
}
