package otellatchkey

import (
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// scope is the name of the meter and of the tracer.
const scope = "github.com/latchkey-go/latchkey/ratelimit/otellatchkey"

// Metrics are the instruments of limiters, Sessions, Campaigns and findings.
// New makes them. Their methods are safe for concurrent use.
type Metrics struct {
	instruments  instruments
	registration metric.Registration
	byNamespace  atomic.Pointer[map[sqllock.Namespace][]metric.RecordOption] // copied on write

	mu        sync.Mutex                 // protects what follows; not held while a collection reads figures
	limiters  map[*ratelimit.Limiter]int // how often each was registered
	removed   map[sqllock.Namespace]limiterFigures
	sessions  map[string]*sqllock.Session
	campaigns map[string]*election.Campaign
	findings  map[findingState]int64
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
	m := &Metrics{
		limiters:  make(map[*ratelimit.Limiter]int),
		removed:   make(map[sqllock.Namespace]limiterFigures),
		sessions:  make(map[string]*sqllock.Session),
		campaigns: make(map[string]*election.Campaign),
		findings:  make(map[findingState]int64),
	}
	m.byNamespace.Store(&map[sqllock.Namespace][]metric.RecordOption{})
	for _, kind := range findingKinds {
		for _, state := range findingStates {
			m.findings[findingState{kind, state}] = 0
		}
	}
	meter := o.meters.Meter(scope)
	if err := m.instruments.create(meter); err != nil {
		return nil, fmt.Errorf("otellatchkey: %w", err)
	}
	var err error
	if m.registration, err = meter.RegisterCallback(m.collect, m.instruments.observable...); err != nil {
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
