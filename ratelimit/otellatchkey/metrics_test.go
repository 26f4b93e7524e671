package otellatchkey_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The histograms have the bounds of the figures that package promlatchkey shows.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := start(t).(subject)
	s.Observe(t.Context(), ratelimit.Event{Namespace: "export", Result: ratelimit.Released, Held: 1})
	s.Observe(t.Context(), ratelimit.Event{Namespace: "export", Result: ratelimit.Admitted, Waited: 1})
	s.SessionObserver("main").Exchanged(time.Millisecond, 1)
	limiter := ratelimit.OneAtATime(sqllock.NewMemory(), "export").Stats()
	session := dbtest.Session(t, "pgx", pgtest.Database(t)).Stats()
	want := map[string][]float64{
		"latchkey.limiter.lease.duration":        limiter.LeaseDuration.Bounds,
		"latchkey.limiter.request.time_in_queue": limiter.TimeInQueue.Bounds,
		"latchkey.session.exchange.duration":     session.ExchangeTime.Bounds,
		"latchkey.session.exchange.keys":         session.ExchangeKeys.Bounds,
	}
	for _, i := range collect(t, s.reader) {
		if data, ok := i.Data.(metricdata.Histogram[float64]); ok {
			if got := data.DataPoints[0].Bounds; !slices.Equal(got, want[i.Name]) {
				t.Errorf("%s has the bounds %v, want %v", i.Name, got, want[i.Name])
			}
			delete(want, i.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("these are not collected: %v", want)
	}
}

// After Close nothing is collected any more.
func TestClose(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Limiter(ratelimit.OneAtATime(sqllock.NewMemory(), "export"))
	if s.Exposition(t) == "" {
		t.Fatal("nothing is collected")
	}
	for range 2 {
		if err := s.(subject).Close(); err != nil {
			t.Fatal(err)
		}
		if text := s.Exposition(t); text != "" {
			t.Errorf("it is collected after Close:\n%s", text)
		}
	}
}

// Without an option the instruments are those of the global MeterProvider.
func TestGlobalProvider(t *testing.T) { // not parallel: it sets a global
	before := otel.GetMeterProvider()
	defer otel.SetMeterProvider(before)
	reader := sdk.NewManualReader()
	otel.SetMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	m, err := otellatchkey.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if got := collect(t, reader); len(got) == 0 {
		t.Error("nothing is collected")
	}
}

// A rejecting MeterProvider registers no callback.
type rejecting struct{ noop.MeterProvider }

type rejectingMeter struct{ noop.Meter }

var errRejected = errors.New("rejected")

func (rejecting) Meter(string, ...metric.MeterOption) metric.Meter { return rejectingMeter{} }

func (rejectingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errRejected
}

// New returns the error of the MeterProvider, and nil is none.
func TestRejected(t *testing.T) {
	t.Parallel()
	_, err := otellatchkey.New(otellatchkey.WithMeterProvider(rejecting{}))
	if !errors.Is(err, errRejected) || !strings.HasPrefix(err.Error(), "otellatchkey: ") {
		t.Errorf("New: %v", err)
	}
	httptesting.WantPanic(t, "otellatchkey", "", func() { otellatchkey.WithMeterProvider(nil) })
}

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}
