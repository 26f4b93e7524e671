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
// port that its users do not reach.
//
//	/locks/      a page: the locks of all instances, asked of the database, and
//	             the figures of this instance
//	/metrics     the figures of this instance for Prometheus: docs/metrics.md
//	/debug/vars  Session.Stats and Limiter.Stats of this instance as JSON, with
//	             what /metrics leaves out: losses by limiter, calls by result
//	/readyz      200, or 503 while this instance has no connection for locks,
//	             unless it has closed it while idle (sqllock.WithIdleClose)
//
// The caller closes the page.
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
		if stats := session.Stats(); stats.Connections == 0 && !stats.IdleClosed {
			http.Error(w, "The lock service has no connection to its database.", http.StatusServiceUnavailable)
		}
	})
	return page, nil
}
