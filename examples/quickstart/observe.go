package main

import (
	"database/sql"
	"encoding/json"
	"expvar"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/promlatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// observe mounts what an operator looks at. A service of your own has these on a
// port that its users do not reach. Everything shows the same figures, those of
// Session.Stats and Limiter.Stats:
//
//	/locks/      a page: who holds, who waits, how the database responds
//	/metrics     for Prometheus
//	/debug/vars  as JSON, for expvar
//	/readyz      200, or 503 while the session has no connection
//
// The caller closes the page, which ends its event streams.
func observe(mux *http.ServeMux, db *sql.DB, session *sqllock.Session, limit *ratelimit.Limiter) (*lockui.Handler, error) {
	page := lockui.New(db, lockui.WithSession("main", session), lockui.WithLimiter(limit))
	mux.Handle("/locks/", page)

	metrics := promlatchkey.New()
	metrics.Session("main", session)
	metrics.Limiter(limit)
	registry := prometheus.NewRegistry()
	if err := registry.Register(metrics); err != nil {
		return nil, err
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	vars := new(expvar.Map)
	vars.Set("session", expvar.Func(func() any { return session.Stats() }))
	vars.Set("limiter", expvar.Func(func() any { return limit.Stats() }))
	mux.HandleFunc("GET /debug/vars", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(json.RawMessage(vars.String())) // the client may have gone
	})

	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if session.Stats().Connections == 0 {
			http.Error(w, "The lock service has no connection to its database.", http.StatusServiceUnavailable)
		}
	})
	return page, nil
}
