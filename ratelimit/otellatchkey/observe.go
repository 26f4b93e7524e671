package otellatchkey

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/latchkey-go/latchkey/internal/instruments"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Observe is for [ratelimit.WithObserver] of every limiter. It records how long
// a lock was held and how long a request waited, and tells the span of ctx what
// was decided:
//
//   - The span gets an event for each decision, and for a lock that was lost.
//   - A wait becomes a span of its own below it.
//
// Without a span that records, a decision without a wait costs a few
// nanoseconds. Nothing that Observe writes holds an id.
func (m *Metrics) Observe(ctx context.Context, e ratelimit.Event) {
	switch e.Result {
	case ratelimit.Released, ratelimit.Lost:
		m.made.histograms[instruments.LeaseDuration].Record(ctx, e.Held.Seconds(), m.optionsOf(e.Namespace)...)
	default:
		if e.Waited > 0 {
			m.made.histograms[instruments.TimeInQueue].Record(ctx, e.Waited.Seconds(), m.optionsOf(e.Namespace)...)
		}
	}
	tellSpan(ctx, e)
}

// optionsOf returns the attributes of a namespace, without an allocation from
// the second call on. A process has few namespaces: they are in its code.
func (m *Metrics) optionsOf(namespace sqllock.Namespace) []metric.RecordOption {
	for {
		known := m.byNamespace.Load()
		if options, ok := (*known)[namespace]; ok {
			return options
		}
		grown := maps.Clone(*known)
		grown[namespace] = []metric.RecordOption{metric.WithAttributes(limiterKey.String(string(namespace)))}
		m.byNamespace.CompareAndSwap(known, &grown)
	}
}

// SessionObserver returns an Observer for [sqllock.WithObserver]. It records the
// round trips of a Session and the keys that they carried. name is that of
// [Metrics.Session].
func (m *Metrics) SessionObserver(name string) sqllock.Observer {
	ctx := context.Background()
	options := []metric.RecordOption{metric.WithAttributes(attribute.String("session", name))}
	duration, carried := m.made.histograms[instruments.ExchangeDuration], m.made.histograms[instruments.ExchangeKeys]
	return sqllock.Observer{Exchanged: func(took time.Duration, keys int) {
		duration.Record(ctx, took.Seconds(), options...)
		carried.Record(ctx, float64(keys), options...)
	}}
}

// The names on spans.
const (
	decisionEvent = "latchkey.limiter.decision"
	lostEvent     = "latchkey.limiter.lost"
	waitSpan      = "latchkey.limiter.wait"

	limiterKey = attribute.Key("limiter")
	resultKey  = attribute.Key("result")
	errorKey   = attribute.Key("error.type") // of OpenTelemetry's conventions
)

// tellSpan writes e to the span of ctx, if that records. A span of a wait is
// made afterwards, by its times, because the limiter reports the wait at its
// end.
func tellSpan(ctx context.Context, e ratelimit.Event) {
	span := trace.SpanFromContext(ctx)
	if e.Result == ratelimit.Released || !span.IsRecording() {
		return
	}
	attributes := make([]attribute.KeyValue, 0, 3)
	attributes = append(attributes, limiterKey.String(string(e.Namespace)), resultKey.String(string(e.Result)))
	if e.Err != nil {
		attributes = append(attributes, errorKey.String(errorType(e.Err)))
	}
	of := trace.WithAttributes(attributes...)
	if e.Result == ratelimit.Lost {
		span.AddEvent(lostEvent, of)
		return
	}
	if e.Waited > 0 {
		end := time.Now()
		_, wait := span.TracerProvider().Tracer(scope).Start(ctx, waitSpan, trace.WithTimestamp(end.Add(-e.Waited)), of)
		wait.End(trace.WithTimestamp(end))
	}
	span.AddEvent(decisionEvent, of)
}

// errorTypes are the words for errors. The text of an error is not among them:
// an attribute needs one of a few values.
var errorTypes = []struct {
	err  error
	word string
}{
	{ratelimit.ErrBusy, "busy"},
	{ratelimit.ErrBadID, "bad_id"},
	{sqllock.ErrLost, "lost"},
	{sqllock.ErrUnavailable, "unavailable"},
	{sqllock.ErrCapacity, "capacity"},
	{sqllock.ErrNotExclusive, "not_exclusive"},
	{sqllock.ErrConfig, "config"},
	{sqllock.ErrClosed, "closed"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
}

// errorType returns the word for err. OpenTelemetry calls an error without a
// word _OTHER.
func errorType(err error) string {
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.word
		}
	}
	return "_OTHER"
}
