package otellatchkey_test

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/latchkey-go/latchkey/internal/metricstest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/otellatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A subject is a Metrics under test, with an SDK of its own.
type subject struct {
	*otellatchkey.Metrics
	reader *sdk.ManualReader
}

func start(t *testing.T) metricstest.Subject {
	t.Helper()
	reader := sdk.NewManualReader()
	m, err := otellatchkey.New(otellatchkey.WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return subject{m, reader}
}

func (s subject) LimiterOptions() []ratelimit.Option {
	return []ratelimit.Option{ratelimit.WithObserver(s.Observe)}
}

func (s subject) SessionOptions(name string) []sqllock.Option {
	return []sqllock.Option{sqllock.WithObserver(s.SessionObserver(name))}
}

// The suite looks for the names of package promlatchkey. So it also shows that
// OpenTelemetry's rules make these names of those of the instruments.
func TestMetrics(t *testing.T) { metricstest.Run(t, start) }

func (s subject) Exposition(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, m := range collect(t, s.reader) {
		name := prometheusName(m)
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				writeSeries(&b, name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				writeSeries(&b, name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				writeSeries(&b, name+"_sum", p.Attributes, p.Sum)
				writeSeries(&b, name+"_count", p.Attributes, p.Count)
			}
		default:
			t.Errorf("%s is a %T", m.Name, m.Data)
		}
	}
	return b.String()
}

// collect returns what the reader of an SDK collects.
func collect(t *testing.T, reader sdk.Reader) (all []metricdata.Metrics) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, scope := range data.ScopeMetrics {
		all = append(all, scope.Metrics...)
	}
	return all
}

// prometheusName is the name that OpenTelemetry's rules for Prometheus make:
// the unit follows, without what is in braces, and "total" for a counter.
func prometheusName(m metricdata.Metrics) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name += "_seconds"
	case "1":
		name += "_ratio"
	}
	if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.IsMonotonic {
		name += "_total"
	}
	return name
}

func writeSeries(b *strings.Builder, name string, attributes attribute.Set, value any) {
	var labels []string
	for _, a := range attributes.ToSlice() {
		labels = append(labels, fmt.Sprintf("%s=%q", a.Key, a.Value.AsString()))
	}
	fmt.Fprintf(b, "%s{%s} %v\n", name, strings.Join(labels, ","), value)
}
