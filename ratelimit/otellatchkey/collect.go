package otellatchkey

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// The attributes. They are spelled like the labels of package promlatchkey, so
// one dashboard and one set of rules serve both.
const (
	limiterKey  = attribute.Key("limiter")
	resultKey   = attribute.Key("result")
	sessionKey  = attribute.Key("session")
	causeKey    = attribute.Key("cause")
	kindKey     = attribute.Key("kind")
	stateKey    = attribute.Key("state")
	campaignKey = attribute.Key("campaign")
)

// collect is the callback of the observable instruments. It asks no database.
func (m *Metrics) collect(_ context.Context, o metric.Observer) error {
	r, out := m.registered(), collection{&m.instruments, o}
	for namespace, sum := range sumByNamespace(r.limiters, r.removed) {
		out.limiter(namespace, sum)
	}
	for name, s := range r.sessions {
		out.session(name, s.Stats())
	}
	for name, c := range r.campaigns {
		out.campaign(name, c.Status())
	}
	for f, n := range r.findings {
		o.ObserveInt64(m.instruments.findings, n, metric.WithAttributes(kindKey.String(f.kind), stateKey.String(f.state)))
	}
	return nil
}

// A collection is one call of the callback.
type collection struct {
	*instruments
	metric.Observer
}

// limiter observes the figures of the limiters of one namespace. Every result
// is there from the first collection on, so that a rule sees the first request
// as an increase.
func (c collection) limiter(namespace sqllock.Namespace, f limiterFigures) {
	name := limiterKey.String(string(namespace))
	for _, result := range results {
		c.ObserveInt64(c.requests, f.requests[result], metric.WithAttributes(name, resultKey.String(string(result))))
	}
	of := metric.WithAttributes(name)
	c.ObserveInt64(c.activeLeases, f.active, of)
	c.ObserveInt64(c.queued, f.queued, of)
	c.ObserveFloat64(c.oldestLease, f.oldest.Seconds(), of)
}

func (c collection) session(name string, s sqllock.Stats) {
	of := metric.WithAttributes(sessionKey.String(name))
	c.ObserveInt64(c.locks, int64(s.Held), of)
	c.ObserveInt64(c.waiters, int64(s.Waiting), of)
	c.ObserveInt64(c.connections, int64(s.Connections), of)
	c.ObserveInt64(c.idleClosed, oneIf(s.IdleClosed), of)
	for cause, n := range s.LossesBy {
		c.ObserveInt64(c.losses, int64(n), metric.WithAttributes(sessionKey.String(name), causeKey.String(cause)))
	}
	c.ObserveInt64(c.locksLost, int64(s.LocksLost), of)
	c.ObserveFloat64(c.leaseRemaining, s.LeaseRemaining.Seconds(), of)
	c.ObserveFloat64(c.heartbeat, s.Heartbeat.Seconds(), of)
	if s.TableSize > 0 {
		c.ObserveFloat64(c.utilization, float64(s.TableUsed)/float64(s.TableSize), of)
	}
}

func (c collection) campaign(name string, s election.Status) {
	of := metric.WithAttributes(campaignKey.String(name))
	c.ObserveInt64(c.leader, oneIf(s.Leader), of)
	c.ObserveInt64(c.terms, int64(s.Terms), of)
}

// oneIf returns 1 if yes, otherwise 0.
func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
