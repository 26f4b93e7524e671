package promlatchkey

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/internal/instruments"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A Collector is a [prometheus.Collector] of the figures of limiters, Sessions,
// Campaigns and findings. New makes one. Its methods are safe for concurrent
// use.
type Collector struct {
	set   *instruments.Set
	descs map[*instruments.Instrument]*prometheus.Desc
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector that shows findings only, until it is given more.
func New() *Collector {
	c := &Collector{instruments.NewSet("promlatchkey"), make(map[*instruments.Instrument]*prometheus.Desc)}
	for _, i := range instruments.Table() {
		c.descs[i] = prometheus.NewDesc(nameOf(i), i.Text, i.Labels, nil)
	}
	return c
}

// nameOf returns the name that OpenTelemetry's rules for Prometheus make of i. So
// one dashboard and one set of rules serve both systems.
func nameOf(i *instruments.Instrument) string {
	name := "latchkey_" + strings.ReplaceAll(i.Name, ".", "_")
	switch i.Unit {
	case "s":
		name += "_seconds"
	case "1":
		name += "_ratio"
	}
	if i.Kind == instruments.Counter {
		name += "_total"
	}
	return name
}

// Limiter shows the figures of l under its namespace. Those of several limiters
// of one namespace are added up, since they share their limit. A Limiter counts
// once, however often it is given.
//
// remove takes l out again, for good. What l has counted stays in the sum of its
// namespace, which never falls, until the last limiter of the namespace is taken
// out. A process whose limiters last as long as itself never needs it. Limiter
// panics if l is nil.
func (c *Collector) Limiter(l *ratelimit.Limiter) (remove func()) { return c.set.Limiter(l) }

// Session shows the figures of s under name. Each Session needs a name of its
// own: two leases have no sum. The name is a label, so it must be one of a few.
//
// remove takes s out again, and frees the name. Session panics if s is nil, or
// if name is empty, not UTF-8 or in use.
func (c *Collector) Session(name string, s *sqllock.Session) (remove func()) {
	return c.set.Session(name, s)
}

// Campaign shows under name whether this process leads. Each Campaign of a
// process needs a name of its own. The Campaigns of a fleet for one key should
// share their name, so that a rule can count the leaders.
//
// remove takes campaign out again, and frees the name. Campaign panics if
// campaign is nil, or if name is empty, not UTF-8 or in use.
func (c *Collector) Campaign(name string, campaign *election.Campaign) (remove func()) {
	return c.set.Campaign(name, campaign)
}

// Finding counts f. It has the signature of the report of [lockwatch.Watch].
func (c *Collector) Finding(f lockwatch.Finding) { c.set.Finding(f) }

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. It asks no database.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.set.Collect(func(s instruments.Sample) {
		desc := c.descs[s.Instrument]
		switch s.Kind {
		case instruments.Counter:
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, s.Value, s.Values...)
		case instruments.UpDown, instruments.Gauge:
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, s.Value, s.Values...)
		case instruments.Histogram:
			h := s.Histogram
			ch <- prometheus.MustNewConstHistogram(desc, h.Count, h.Sum, cumulative(h), s.Values...)
		}
	})
}

// cumulative returns for each bound how many values are up to it.
func cumulative(h sqllock.Histogram) map[float64]uint64 {
	buckets, n := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	return buckets
}
