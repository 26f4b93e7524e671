package promlatchkey

import (
	"slices"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// results are those of the decisions, without the ends of a hold.
var results = []ratelimit.Result{
	ratelimit.Admitted, ratelimit.Busy, ratelimit.WaitTimeout, ratelimit.Canceled,
	ratelimit.FailedOpen, ratelimit.DryRun, ratelimit.Failed,
}

// limiter sends the figures of the limiters of one namespace. Every result is
// there from the first scrape on, so that a rule sees the first request as an
// increase.
func (m metrics) limiter(namespace string, s ratelimit.Stats) {
	for _, result := range results {
		m.counter(requests, s.Requests[result], namespace, string(result))
	}
	m.gauge(activeLeases, float64(s.Active), namespace)
	m.gauge(queued, float64(s.Queued), namespace)
	m.gauge(oldestLease, s.Oldest.Seconds(), namespace)
	m.histogram(leaseDuration, s.LeaseDuration, namespace)
	m.histogram(timeInQueue, s.TimeInQueue, namespace)
}

// keepLocked keeps what l has counted, which was taken out, if other limiters of
// its namespace are there. Without it the sum would fall.
func (c *Collector) keepLocked(l *ratelimit.Limiter) {
	namespace := l.Namespace()
	for other := range c.limiters {
		if other.Namespace() != namespace {
			continue
		}
		s := l.Stats()
		s.Active, s.Queued, s.Oldest = 0, 0, 0 // they are not shown any more
		if sum, ok := c.removed[namespace]; ok {
			s = add(sum, s)
		}
		c.removed[namespace] = s
		return
	}
	delete(c.removed, namespace)
}

// sumByNamespace adds up the figures of limiters that share their limit. sums
// has what those counted that were taken out.
func sumByNamespace(limiters []*ratelimit.Limiter, sums map[sqllock.Namespace]ratelimit.Stats) map[sqllock.Namespace]ratelimit.Stats {
	for _, l := range limiters {
		s := l.Stats()
		if sum, ok := sums[l.Namespace()]; ok {
			s = add(sum, s)
		}
		sums[l.Namespace()] = s
	}
	return sums
}

// add adds up what this package shows.
func add(a, b ratelimit.Stats) ratelimit.Stats {
	sum := ratelimit.Stats{
		Requests:      make(map[ratelimit.Result]uint64),
		Active:        a.Active + b.Active,
		Queued:        a.Queued + b.Queued,
		Oldest:        max(a.Oldest, b.Oldest),
		LeaseDuration: addHistograms(a.LeaseDuration, b.LeaseDuration),
		TimeInQueue:   addHistograms(a.TimeInQueue, b.TimeInQueue),
	}
	for _, result := range results {
		sum.Requests[result] = a.Requests[result] + b.Requests[result]
	}
	return sum
}

// addHistograms adds b to a. All limiters have the same bounds.
func addHistograms(a, b sqllock.Histogram) sqllock.Histogram {
	sum := sqllock.Histogram{Bounds: a.Bounds, Counts: slices.Clone(a.Counts), Count: a.Count + b.Count, Sum: a.Sum + b.Sum}
	for i, n := range b.Counts {
		sum.Counts[i] += n
	}
	return sum
}
