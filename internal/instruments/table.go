// Package instruments has the table of what latchkey shows to monitoring
// systems, and reads the values. Packages otellatchkey and promlatchkey, which
// are modules of their own, bring them to OpenTelemetry and to Prometheus:
//
//	set := instruments.NewSet("promlatchkey")
//	set.Limiter(exports)
//	set.Collect(func(s instruments.Sample) { … })
//
// What is exported here stays compatible: a program may use an older version of
// these two modules with a newer one of this package.
package instruments

import (
	"slices"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Kind is what a value of an Instrument means.
type Kind int

const (
	Counter   Kind = iota // grows only
	UpDown                // a number of things, which can be added up
	Gauge                 // a measured value
	Histogram             // many values, counted by how large they are
)

// An Instrument is one figure of a limiter, a Session, a Campaign or a watch.
type Instrument struct {
	Name   string // OpenTelemetry's, without "latchkey."
	Kind   Kind
	Unit   string // in the notation of UCUM
	Text   string // what it shows
	Labels []string
}

// Table returns all instruments. Their names and kinds follow those of ASP.NET's
// rate limiting, the only stable convention for limiters in OpenTelemetry's
// semantic conventions.
func Table() []*Instrument { return slices.Clone(table) }

var table []*Instrument

func add(name string, kind Kind, unit, text string, labels ...string) *Instrument {
	i := &Instrument{name, kind, unit, text, labels}
	table = append(table, i)
	return i
}

// The labels. None depends on an id.
const (
	limiterLabel  = "limiter"
	resultLabel   = "result"
	sessionLabel  = "session"
	causeLabel    = "cause"
	kindLabel     = "kind"
	stateLabel    = "state"
	campaignLabel = "campaign"
)

var (
	requests     = add("limiter.requests", Counter, "{request}", "Requests that a limiter decided, by result.", limiterLabel, resultLabel)
	activeLeases = add("limiter.active_leases", UpDown, "{lease}", "Locks of admitted requests that this process holds now.", limiterLabel)
	queued       = add("limiter.queued_requests", UpDown, "{request}", "Requests of this process that wait now.", limiterLabel)
	oldestLease  = add("limiter.oldest_lease", Gauge, "s", "Age of the oldest of the locks that this process holds now; 0: there is none.", limiterLabel)

	// LeaseDuration and TimeInQueue are for a caller that records each value.
	LeaseDuration = add("limiter.lease.duration", Histogram, "s", "How long admitted requests held their locks.", limiterLabel)
	TimeInQueue   = add("limiter.request.time_in_queue", Histogram, "s", "How long requests waited that found their id busy.", limiterLabel)

	locks       = add("session.locks", UpDown, "{lock}", "Locks that the Session holds now.", sessionLabel)
	waiters     = add("session.waiters", UpDown, "{waiter}", "Calls that wait for a lock now.", sessionLabel)
	connections = add("session.connections", UpDown, "{connection}", "Database connections in use for locks; 0 while the database is away, or closed while idle.", sessionLabel)
	idleClosed  = add("session.idle_closed", UpDown, "{session}", "1 while the connection is closed because no lock was needed, otherwise 0.", sessionLabel)

	// ExchangeDuration and ExchangeKeys are for a caller that records each value.
	ExchangeDuration = add("session.exchange.duration", Histogram, "s", "Round trips of the statements of locks, heartbeats included.", sessionLabel)
	ExchangeKeys     = add("session.exchange.keys", Histogram, "{key}", "Keys that a statement of locks carried.", sessionLabel)

	losses         = add("session.losses", Counter, "{loss}", "Connections that were lost, by cause.", sessionLabel, causeLabel)
	locksLost      = add("session.locks_lost", Counter, "{lock}", "Locks that ended with a lost connection.", sessionLabel)
	leaseRemaining = add("session.lease.remaining", Gauge, "s", "Time until locks are given up without another response; 0 without a connection.", sessionLabel)
	heartbeat      = add("session.heartbeat", Gauge, "s", "Time between two heartbeats of an idle connection.", sessionLabel)
	utilization    = add("session.lock_table.utilization", Gauge, "1", "Part of the server's lock table that all its clients use.", sessionLabel)

	findings = add("watch.findings", Counter, "{finding}", "Findings of lockwatch.Watch, by kind and state.", kindLabel, stateLabel)

	leader = add("campaign.leader", UpDown, "{leader}", "1 while this process leads, otherwise 0.", campaignLabel)
	terms  = add("campaign.terms", Counter, "{term}", "Terms that this process has begun.", campaignLabel)
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
