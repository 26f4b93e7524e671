package otellatchkey

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

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
