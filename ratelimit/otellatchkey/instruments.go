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
