// Package otellatchkey shows the figures of latchkey to OpenTelemetry:
//
//	metrics, err := otellatchkey.New()
//	if err != nil {
//		return err
//	}
//	defer metrics.Close()
//
//	session, err := sqllock.Open(ctx, db, sqllock.WithObserver(metrics.SessionObserver("main")))
//	…
//	metrics.Session("main", session)
//	exports := ratelimit.OneAtATime(session, "export", ratelimit.WithObserver(metrics.Observe))
//	metrics.Limiter(exports)
//	metrics.Campaign("nightly", campaign)
//	go lockwatch.Watch(ctx, db, metrics.Finding)
//
// exports is the limiter that requests use: each Limiter has figures of its own.
//
// Counters and gauges are observable instruments. A [Metrics] reads them from
// Stats and Status of what it was given, once for each collection. OpenTelemetry
// has no observable histogram, so the two observers record the histograms.
// Without an observer these stay empty.
//
// [Metrics.Observe] also tells the span of the request what was decided.
//
// An attribute holds the namespace of a limiter, a name that the caller chose,
// or a word of a fixed list. So no attribute holds an id, a key or a host, and
// the number of series does not depend on ids.
//
// The page on [metrics] lists the instruments.
//
// [metrics]: https://github.com/latchkey-go/latchkey/blob/main/docs/metrics.md
package otellatchkey
