package otellatchkey

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// The bounds of the histograms. They are those of the figures of packages
// sqllock and ratelimit, which package promlatchkey shows.
var (
	secondBounds = []float64{
		0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300,
	}
	keyBounds = []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
)

// The instruments. Names and kinds follow those of ASP.NET's rate limiting.
type instruments struct {
	requests      metric.Int64ObservableCounter
	activeLeases  metric.Int64ObservableUpDownCounter
	queued        metric.Int64ObservableUpDownCounter
	oldestLease   metric.Float64ObservableGauge
	leaseDuration metric.Float64Histogram
	timeInQueue   metric.Float64Histogram

	locks            metric.Int64ObservableUpDownCounter
	waiters          metric.Int64ObservableUpDownCounter
	connections      metric.Int64ObservableUpDownCounter
	idleClosed       metric.Int64ObservableUpDownCounter
	exchangeDuration metric.Float64Histogram
	exchangeKeys     metric.Int64Histogram
	losses           metric.Int64ObservableCounter
	locksLost        metric.Int64ObservableCounter
	leaseRemaining   metric.Float64ObservableGauge
	heartbeat        metric.Float64ObservableGauge
	utilization      metric.Float64ObservableGauge

	findings metric.Int64ObservableCounter

	leader metric.Int64ObservableUpDownCounter
	terms  metric.Int64ObservableCounter

	observable []metric.Observable // those that the callback observes
}

// create makes the instruments with meter.
func (i *instruments) create(meter metric.Meter) error {
	m := maker{meter: meter}
	*i = instruments{
		requests:      m.counter("limiter.requests", "{request}", "Requests that a limiter decided, by result."),
		activeLeases:  m.upDown("limiter.active_leases", "{lease}", "Locks of admitted requests that this process holds now."),
		queued:        m.upDown("limiter.queued_requests", "{request}", "Requests of this process that wait now."),
		oldestLease:   m.gauge("limiter.oldest_lease", "s", "Age of the oldest of the locks that this process holds now; 0: there is none."),
		leaseDuration: m.seconds("limiter.lease.duration", "How long admitted requests held their locks."),
		timeInQueue:   m.seconds("limiter.request.time_in_queue", "How long requests waited that found their id busy."),

		locks:            m.upDown("session.locks", "{lock}", "Locks that the Session holds now."),
		waiters:          m.upDown("session.waiters", "{waiter}", "Calls that wait for a lock now."),
		connections:      m.upDown("session.connections", "{connection}", "Database connections in use for locks; 0 while the database is away, or closed while idle."),
		idleClosed:       m.upDown("session.idle_closed", "{session}", "1 while the connection is closed because no lock was needed, otherwise 0."),
		exchangeDuration: m.seconds("session.exchange.duration", "Round trips of the statements of locks, heartbeats included."),
		exchangeKeys:     m.keys("session.exchange.keys", "Keys that a statement of locks carried."),
		losses:           m.counter("session.losses", "{loss}", "Connections that were lost, by cause."),
		locksLost:        m.counter("session.locks_lost", "{lock}", "Locks that ended with a lost connection."),
		leaseRemaining:   m.gauge("session.lease.remaining", "s", "Time until locks are given up without another response; 0 without a connection."),
		heartbeat:        m.gauge("session.heartbeat", "s", "Time between two heartbeats of an idle connection."),
		utilization:      m.gauge("session.lock_table.utilization", "1", "Part of the server's lock table that all its clients use."),

		findings: m.counter("watch.findings", "{finding}", "Findings of lockwatch.Watch, by kind and state."),

		leader: m.upDown("campaign.leader", "{leader}", "1 while this process leads, otherwise 0."),
		terms:  m.counter("campaign.terms", "{term}", "Terms that this process has begun."),
	}
	i.observable = m.observable
	return errors.Join(m.errs...)
}

// A maker makes instruments, and keeps the errors until the end.
type maker struct {
	meter      metric.Meter
	observable []metric.Observable
	errs       []error
}

func (m *maker) counter(name, unit, description string) metric.Int64ObservableCounter {
	i, err := m.meter.Int64ObservableCounter("latchkey."+name, metric.WithUnit(unit), metric.WithDescription(description))
	return observed(m, i, err)
}

func (m *maker) upDown(name, unit, description string) metric.Int64ObservableUpDownCounter {
	i, err := m.meter.Int64ObservableUpDownCounter("latchkey."+name, metric.WithUnit(unit), metric.WithDescription(description))
	return observed(m, i, err)
}

func (m *maker) gauge(name, unit, description string) metric.Float64ObservableGauge {
	i, err := m.meter.Float64ObservableGauge("latchkey."+name, metric.WithUnit(unit), metric.WithDescription(description))
	return observed(m, i, err)
}

func observed[T metric.Observable](m *maker, i T, err error) T {
	m.errs = append(m.errs, err)
	m.observable = append(m.observable, i)
	return i
}

func (m *maker) seconds(name, description string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram("latchkey."+name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(secondBounds...))
	m.errs = append(m.errs, err)
	return h
}

func (m *maker) keys(name, description string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram("latchkey."+name, metric.WithUnit("{key}"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(keyBounds...))
	m.errs = append(m.errs, err)
	return h
}
