package promlatchkey

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// Collect implements [prometheus.Collector]. It asks no database.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	r, out := c.registered(), metrics(ch)
	for namespace, sum := range sumByNamespace(r.limiters, r.removed) {
		out.limiter(string(namespace), sum)
	}
	for name, s := range r.sessions {
		out.session(name, s.Stats())
	}
	for name, campaign := range r.campaigns {
		out.campaign(name, campaign.Status())
	}
	for f, n := range r.findings {
		out.counter(findings, n, f.kind, f.state)
	}
}

// metrics is where Collect sends the metrics of a scrape.
type metrics chan<- prometheus.Metric

func (m metrics) session(name string, s sqllock.Stats) {
	m.gauge(locks, float64(s.Held), name)
	m.gauge(waiters, float64(s.Waiting), name)
	m.gauge(connections, float64(s.Connections), name)
	m.gauge(idleClosed, oneIf(s.IdleClosed), name)
	m.histogram(exchangeDuration, s.ExchangeTime, name)
	m.histogram(exchangeKeys, s.ExchangeKeys, name)
	for cause, n := range s.LossesBy {
		m.counter(losses, n, name, cause)
	}
	m.counter(locksLost, s.LocksLost, name)
	m.gauge(leaseRemaining, s.LeaseRemaining.Seconds(), name)
	m.gauge(heartbeat, s.Heartbeat.Seconds(), name)
	if s.TableSize > 0 {
		m.gauge(utilization, float64(s.TableUsed)/float64(s.TableSize), name)
	}
}

func (m metrics) campaign(name string, s election.Status) {
	m.gauge(leader, oneIf(s.Leader), name)
	m.counter(terms, uint64(s.Terms), name)
}

// oneIf returns 1 if yes, otherwise 0.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func (m metrics) gauge(d *prometheus.Desc, v float64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (m metrics) counter(d *prometheus.Desc, n uint64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// histogram sends h, whose buckets are not cumulative.
func (m metrics) histogram(d *prometheus.Desc, h sqllock.Histogram, labels ...string) {
	buckets, n := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	m <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, buckets, labels...)
}
