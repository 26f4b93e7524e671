package otellatchkey

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/internal/instruments"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// scope is the name of the meter and of the tracer.
const scope = "github.com/latchkey-go/latchkey/ratelimit/otellatchkey"

// Metrics are the instruments of limiters, Sessions, Campaigns and findings.
// New makes them. Their methods are safe for concurrent use.
type Metrics struct {
	set          *instruments.Set
	made         *made
	registration metric.Registration
	byNamespace  atomic.Pointer[map[sqllock.Namespace][]metric.RecordOption] // copied on write
}

// An Option changes what [New] makes.
type Option func(*options)

type options struct{ meters metric.MeterProvider }

// WithMeterProvider sets where the instruments come from. The default is
// [otel.GetMeterProvider] at the time of New.
//
// WithMeterProvider panics if p is nil.
func WithMeterProvider(p metric.MeterProvider) Option {
	if p == nil {
		panic("otellatchkey: WithMeterProvider needs a MeterProvider that is not nil")
	}
	return func(o *options) { o.meters = p }
}

// New makes the instruments. An error is that of the MeterProvider: it rejects
// an instrument, for example because a View does not fit it.
//
// One Metrics is enough for a MeterProvider. What is given to two of them is
// counted twice.
func New(opts ...Option) (*Metrics, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.meters == nil {
		o.meters = otel.GetMeterProvider()
	}
	m := &Metrics{set: instruments.NewSet("otellatchkey")}
	m.byNamespace.Store(&map[sqllock.Namespace][]metric.RecordOption{})
	meter := o.meters.Meter(scope)
	var err error
	if m.made, err = makeInstruments(meter); err == nil {
		m.registration, err = meter.RegisterCallback(m.collect, slices.Collect(maps.Values(m.made.observables))...)
	}
	if err != nil {
		return nil, fmt.Errorf("otellatchkey: %w", err)
	}
	return m, nil
}

// Close ends the callback: the counters and gauges are not collected any more.
// A second call does nothing.
func (m *Metrics) Close() error {
	if err := m.registration.Unregister(); err != nil {
		return fmt.Errorf("otellatchkey: %w", err)
	}
	return nil
}

// Limiter shows the figures of l under its namespace. Those of several limiters
// of one namespace are added up, since they share their limit. A Limiter counts
// once, however often it is given. Its two histograms need [Metrics.Observe].
//
// remove takes l out again, for good. What l has counted stays in the sum of its
// namespace, which never falls, until the last limiter of the namespace is taken
// out. A process whose limiters last as long as itself never needs it. Limiter
// panics if l is nil.
func (m *Metrics) Limiter(l *ratelimit.Limiter) (remove func()) { return m.set.Limiter(l) }

// Session shows the figures of s under name. Each Session needs a name of its
// own: two leases have no sum. The name is an attribute, so it must be one of a
// few. Its two histograms need [Metrics.SessionObserver] under the same name.
//
// remove takes s out again, and frees the name. Session panics if s is nil, or
// if name is empty, not UTF-8 or in use.
func (m *Metrics) Session(name string, s *sqllock.Session) (remove func()) {
	return m.set.Session(name, s)
}

// Campaign shows under name whether this process leads. Each Campaign of a
// process needs a name of its own. The Campaigns of a fleet for one key should
// share their name, so that a rule can count the leaders.
//
// remove takes c out again, and frees the name. Campaign panics if c is nil, or
// if name is empty, not UTF-8 or in use.
func (m *Metrics) Campaign(name string, c *election.Campaign) (remove func()) {
	return m.set.Campaign(name, c)
}

// Finding counts f. It has the signature of the report of [lockwatch.Watch].
func (m *Metrics) Finding(f lockwatch.Finding) { m.set.Finding(f) }

// made are OpenTelemetry's instruments for those of the table.
type made struct {
	observables map[*instruments.Instrument]metric.Observable // by the callback
	histograms  map[*instruments.Instrument]metric.Float64Histogram
}

// makeInstruments makes all instruments with meter.
func makeInstruments(meter metric.Meter) (*made, error) {
	m := &made{make(map[*instruments.Instrument]metric.Observable), make(map[*instruments.Instrument]metric.Float64Histogram)}
	var all []error
	for _, i := range instruments.Table() {
		name, unit, text := "latchkey."+i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Text)
		var err error
		switch i.Kind {
		case instruments.Counter:
			m.observables[i], err = meter.Int64ObservableCounter(name, unit, text)
		case instruments.UpDown:
			m.observables[i], err = meter.Int64ObservableUpDownCounter(name, unit, text)
		case instruments.Gauge:
			m.observables[i], err = meter.Float64ObservableGauge(name, unit, text)
		case instruments.Histogram:
			bounds := histogram.Seconds
			if i.Unit != "s" {
				bounds = histogram.Keys
			}
			m.histograms[i], err = meter.Float64Histogram(name, unit, text,
				metric.WithExplicitBucketBoundaries(histogram.New(bounds).Snapshot().Bounds...))
		}
		all = append(all, err)
	}
	return m, errors.Join(all...)
}

// collect is the callback of the observable instruments. It asks no database.
func (m *Metrics) collect(_ context.Context, o metric.Observer) error {
	m.set.Collect(func(s instruments.Sample) {
		attributes := make([]attribute.KeyValue, len(s.Labels))
		for i, label := range s.Labels {
			attributes[i] = attribute.String(label, s.Values[i])
		}
		of := metric.WithAttributes(attributes...)
		switch i := m.made.observables[s.Instrument].(type) { // the observers record histograms
		case metric.Int64Observable:
			o.ObserveInt64(i, int64(s.Value), of)
		case metric.Float64Observable:
			o.ObserveFloat64(i, s.Value, of)
		}
	})
	return nil
}
