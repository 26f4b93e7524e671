package instruments

import (
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Sample is a value of an Instrument at one moment.
type Sample struct {
	*Instrument
	Values []string // of the labels, in their order

	// One of the two, by Kind.
	Value     float64
	Histogram sqllock.Histogram
}

// results are those of decisions, without the ends of a hold. Each is shown from
// the beginning, so that a rule sees the first request as an increase.
var results = []ratelimit.Result{
	ratelimit.Admitted, ratelimit.Busy, ratelimit.WaitTimeout, ratelimit.Canceled,
	ratelimit.FailedOpen, ratelimit.DryRun, ratelimit.Failed,
}

// Collect calls report for each value of s now. It asks no database.
//
// The figures of limiters of one namespace are added up, since they share their
// limit.
func (s *Set) Collect(report func(Sample)) {
	value := func(i *Instrument, v float64, labels ...string) {
		report(Sample{Instrument: i, Values: labels, Value: v})
	}
	histogram := func(i *Instrument, h sqllock.Histogram, labels ...string) {
		report(Sample{Instrument: i, Values: labels, Histogram: h})
	}
	c := s.clone()
	sums := c.removed
	for l := range c.limiters {
		sums[l.Namespace()] = plus(sums[l.Namespace()], l.Stats())
	}
	for namespace, sum := range sums {
		name := string(namespace)
		for _, result := range results {
			value(requests, float64(sum.Requests[result]), name, string(result))
		}
		value(activeLeases, float64(sum.Active), name)
		value(queued, float64(sum.Queued), name)
		value(oldestLease, sum.Oldest.Seconds(), name)
		histogram(LeaseDuration, sum.LeaseDuration, name)
		histogram(TimeInQueue, sum.TimeInQueue, name)
	}
	for name, session := range c.sessions {
		stats := session.Stats()
		value(locks, float64(stats.Held), name)
		value(waiters, float64(stats.Waiting), name)
		value(connections, float64(stats.Connections), name)
		value(idleClosed, oneIf(stats.IdleClosed), name)
		histogram(ExchangeDuration, stats.ExchangeTime, name)
		histogram(ExchangeKeys, stats.ExchangeKeys, name)
		for cause, n := range stats.LossesBy {
			value(losses, float64(n), name, cause)
		}
		value(locksLost, float64(stats.LocksLost), name)
		value(leaseRemaining, stats.LeaseRemaining.Seconds(), name)
		value(heartbeat, stats.Heartbeat.Seconds(), name)
		if stats.TableSize > 0 {
			value(utilization, float64(stats.TableUsed)/float64(stats.TableSize), name)
		}
	}
	for name, campaign := range c.campaigns {
		status := campaign.Status()
		value(leader, oneIf(status.Leader), name)
		value(terms, float64(status.Terms), name)
	}
	for f, n := range c.findings {
		value(findings, float64(n), f.kind, f.state)
	}
}

// oneIf returns 1 if yes, otherwise 0.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
