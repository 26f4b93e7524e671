package otellatchkey

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/internal/instruments"
)

// made are OpenTelemetry's instruments for those of the table.
type made struct {
	ints       map[*instruments.Instrument]metric.Int64Observable
	floats     map[*instruments.Instrument]metric.Float64Observable
	histograms map[*instruments.Instrument]metric.Float64Histogram

	observable []metric.Observable // those that the callback observes
}

// makeInstruments makes all instruments with meter.
func makeInstruments(meter metric.Meter) (*made, error) {
	m := &made{
		ints:       make(map[*instruments.Instrument]metric.Int64Observable),
		floats:     make(map[*instruments.Instrument]metric.Float64Observable),
		histograms: make(map[*instruments.Instrument]metric.Float64Histogram),
	}
	var all []error
	for _, i := range instruments.Table() {
		name, unit, text := "latchkey."+i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Text)
		var err error
		switch i.Kind {
		case instruments.Counter:
			m.ints[i], err = meter.Int64ObservableCounter(name, unit, text)
			m.observable = append(m.observable, m.ints[i])
		case instruments.UpDown:
			m.ints[i], err = meter.Int64ObservableUpDownCounter(name, unit, text)
			m.observable = append(m.observable, m.ints[i])
		case instruments.Gauge:
			m.floats[i], err = meter.Float64ObservableGauge(name, unit, text)
			m.observable = append(m.observable, m.floats[i])
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
		switch s.Kind {
		case instruments.Counter, instruments.UpDown:
			o.ObserveInt64(m.made.ints[s.Instrument], int64(s.Value), of)
		case instruments.Gauge:
			o.ObserveFloat64(m.made.floats[s.Instrument], s.Value, of)
		case instruments.Histogram: // the observers record it
		}
	})
	return nil
}
