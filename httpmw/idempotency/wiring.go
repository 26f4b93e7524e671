package idempotency

import (
	"log/slog"
	"net/http"
)

// Mistakes of the service's wiring, for the log.
const (
	noPrincipalText = "idempotency: a request has no principal: is the middleware inside of the authentication and of the router?"
	twiceText       = "idempotency: a request needs two places of one limit: is the middleware on its road twice?"
)

// report logs text about r's route. A pattern is not an id; the URL may hold
// one.
func (m *Middleware) report(r *http.Request, level slog.Level, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("namespace", string(m.limiter.Namespace())))
	m.reports.Log(r.Context(), m.log, level, text, slog.String("route", r.Pattern), attrs...)
}
