package httpmw

import (
	"log/slog"
	"net/http"

	"github.com/latchkey-go/latchkey/ratelimit"
)

// Mistakes in how a server is wired, for the log.
const (
	noKeyText  = "httpmw: a request has no key: is the middleware inside of the authentication and of the router?"
	twiceText  = "httpmw: a request needs two places of one limit: is the limit on its road twice?"
	failedText = "httpmw: a KeyFunc failed"
	policyText = "httpmw: the policy of a limit failed"
)

// report logs text about r's route and l. A pattern is not an id; the URL may
// hold one.
func (m *Middleware) report(r *http.Request, l *ratelimit.Limiter, severity slog.Level, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("namespace", string(l.Namespace())))
	m.reports.Log(r.Context(), m.log, severity, text, slog.String("route", r.Pattern), attrs...)
}

// reportPolicy logs err of a limit's policy. Its text names the limit.
func (m *Middleware) reportPolicy(r *http.Request, err error) {
	m.reports.Log(r.Context(), m.log, slog.LevelError, policyText, slog.String("route", r.Pattern), slog.Any("error", err))
}
