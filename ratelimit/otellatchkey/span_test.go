package otellatchkey_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// traced runs work under a span named request, and returns it and what else was
// recorded meanwhile.
func traced(t *testing.T, work func(ctx context.Context)) (request sdk.ReadOnlySpan, others []sdk.ReadOnlySpan) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	ctx, span := provider.Tracer("test").Start(t.Context(), "request")
	work(ctx)
	span.End()
	for _, s := range recorder.Ended() {
		if s.Name() == "request" {
			request = s
		} else {
			others = append(others, s)
		}
	}
	return request, others
}

// observed returns the option of limiters whose spans a test looks at.
func observed(t *testing.T) ratelimit.Option {
	t.Helper()
	m, err := otellatchkey.New(otellatchkey.WithMeterProvider(noop.NewMeterProvider()))
	if err != nil {
		t.Fatal(err)
	}
	return ratelimit.WithObserver(m.Observe)
}

func words(attributes []attribute.KeyValue) string {
	var all []string
	for _, a := range attributes {
		all = append(all, string(a.Key)+"="+a.Value.Emit())
	}
	return strings.Join(all, " ")
}

// wantEvents checks the events of a span, each with its attributes.
func wantEvents(t *testing.T, s sdk.ReadOnlySpan, want ...string) {
	t.Helper()
	var got []string
	for _, e := range s.Events() {
		got = append(got, e.Name+" "+words(e.Attributes))
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

const id = "needle-1"

// Each decision is an event of the caller's span. There is no other span, as no
// request waits.
func TestDecisionEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error // of the Locker
		opts []ratelimit.Option
		want string
	}{
		{"admitted", nil, nil, "result=admitted"},
		{"busy", sqllock.ErrHeld, nil, "result=busy error.type=busy"},
		{"dry run", sqllock.ErrHeld, []ratelimit.Option{ratelimit.WithDryRun()}, "result=dry_run error.type=busy"},
		{"away", sqllock.ErrUnavailable, nil, "result=error error.type=unavailable"},
		{"fails open", sqllock.ErrUnavailable, []ratelimit.Option{ratelimit.WithFailOpen()}, "result=failed_open error.type=unavailable"},
		{"full", sqllock.ErrCapacity, nil, "result=error error.type=capacity"},
		{"pooler", sqllock.ErrNotExclusive, nil, "result=error error.type=not_exclusive"},
		{"password", sqllock.ErrConfig, nil, "result=error error.type=config"},
		{"closed", sqllock.ErrClosed, nil, "result=error error.type=closed"},
		{"long id", nil, []ratelimit.Option{ratelimit.WithMaxIDLen(1)}, "result=error error.type=bad_id"},
		{"another", errors.New("of " + id), nil, "result=error error.type=_OTHER"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var locks sqllock.Locker = sqllock.NewMemory()
			if tt.err != nil {
				locks = httptesting.Failing{Err: tt.err}
			}
			l := ratelimit.OneAtATime(locks, "export", append(tt.opts, observed(t))...)
			request, others := traced(t, func(ctx context.Context) {
				lock, _ := l.Acquire(ctx, id)
				_ = lock.Unlock()
			})
			wantEvents(t, request, "latchkey.limiter.decision limiter=export "+tt.want)
			if len(others) != 0 {
				t.Errorf("%d spans more", len(others))
			}
		})
	}
}

// A wait is a span below the caller's span, and as long as the wait.
func TestWaitSpan(t *testing.T) {
	t.Parallel()
	var waited time.Duration
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Hour, 1), observed(t),
		ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) { waited = max(waited, e.Waited) }))
	held, err := l.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	request, others := traced(t, func(ctx context.Context) {
		unlocked := make(chan struct{})
		go func() {
			defer close(unlocked)
			lockertest.Eventually(t, "a request waits", func() bool { return l.Stats().Queued == 1 })
			_ = held.Unlock()
		}()
		lock, err := l.Acquire(ctx, id)
		<-unlocked
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		_ = lock.Unlock()
	})
	wantEvents(t, request, "latchkey.limiter.decision limiter=export result=admitted")
	if len(others) != 1 {
		t.Fatalf("%d spans more, want the wait", len(others))
	}
	wait := others[0]
	if wait.Name() != "latchkey.limiter.wait" || wait.Parent().SpanID() != request.SpanContext().SpanID() || words(wait.Attributes()) != "limiter=export result=admitted" {
		t.Errorf("the wait is %s %s below %s", wait.Name(), words(wait.Attributes()), wait.Parent().SpanID())
	}
	if length := wait.EndTime().Sub(wait.StartTime()); length != waited {
		t.Errorf("the span of the wait has %v, and the wait had %v", length, waited)
	}
	if wait.StartTime().Before(request.StartTime()) || wait.EndTime().After(request.EndTime()) {
		t.Errorf("the wait, %v to %v, is not within the request, %v to %v", wait.StartTime(), wait.EndTime(), request.StartTime(), request.EndTime())
	}
}

// A loss is an event of the span of the request that had the lock. A release is
// none.
func TestLossEvent(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	l := ratelimit.OneAtATime(locks, "export", observed(t))
	request, _ := traced(t, func(ctx context.Context) {
		if _, err := l.Acquire(ctx, id); err != nil {
			t.Fatal(err)
		}
		locks.Lose()
		lockertest.Eventually(t, "the loss is told", func() bool {
			return len(trace.SpanFromContext(ctx).(sdk.ReadOnlySpan).Events()) == 2
		})
	})
	wantEvents(t, request,
		"latchkey.limiter.decision limiter=export result=admitted",
		"latchkey.limiter.lost limiter=export result=lost error.type=lost")
}

// A span that does not record costs no allocation.
func TestNotRecording(t *testing.T) {
	observe := func(ctx context.Context) float64 {
		m, err := otellatchkey.New(otellatchkey.WithMeterProvider(noop.NewMeterProvider()))
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(100, func() {
			for _, result := range []ratelimit.Result{ratelimit.Admitted, ratelimit.Busy, ratelimit.Released} {
				m.Observe(ctx, ratelimit.Event{Namespace: "export", Result: result, Held: 1, Err: ratelimit.ErrBusy})
			}
		})
	}
	never, span := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())).Tracer("test").Start(t.Context(), "request")
	defer span.End()
	for name, ctx := range map[string]context.Context{"no span": t.Context(), "a span that is not sampled": never} {
		if n := observe(ctx); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
