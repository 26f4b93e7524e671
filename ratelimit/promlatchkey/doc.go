// Package promlatchkey shows the figures of latchkey to Prometheus:
//
//	metrics := promlatchkey.New()
//	prometheus.MustRegister(metrics)
//
//	metrics.Session("main", session)
//	exports := ratelimit.OneAtATime(session, "export") // that requests use: each Limiter has figures of its own
//	metrics.Limiter(exports)
//	metrics.Campaign("nightly", campaign)
//	go lockwatch.Watch(ctx, db, metrics.Finding)
//
// A [Collector] counts nothing by itself, except findings. It reads the Stats
// and Status of what it was given, once for each scrape. A request costs
// nothing more than without it.
//
// A label holds the namespace of a limiter, a name that the caller chose, or a
// word of a fixed list. So no label holds an id, a key or a host, and the
// number of series does not depend on ids.
//
// The page on [metrics] lists them. The folder of this package has a dashboard
// for Grafana and alert rules: dashboard.json and alerts.yml.
//
// [metrics]: https://github.com/latchkey-go/latchkey/blob/main/docs/metrics.md
package promlatchkey
