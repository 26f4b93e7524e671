package promlatchkey

import "github.com/prometheus/client_golang/prometheus"

// The metrics. Their names are those that OpenTelemetry's rules make of the
// names of package otellatchkey, so one dashboard and one set of rules serve
// both.
var (
	requests      = describe("limiter_requests_total", "Requests that a limiter decided, by result.", "limiter", "result")
	activeLeases  = describe("limiter_active_leases", "Locks of admitted requests that this process holds now.", "limiter")
	queued        = describe("limiter_queued_requests", "Requests of this process that wait now.", "limiter")
	oldestLease   = describe("limiter_oldest_lease_seconds", "Age of the oldest of the locks that this process holds now; 0: there is none.", "limiter")
	leaseDuration = describe("limiter_lease_duration_seconds", "How long admitted requests held their locks.", "limiter")
	timeInQueue   = describe("limiter_request_time_in_queue_seconds", "How long requests waited that found their id busy.", "limiter")

	locks            = describe("session_locks", "Locks that the Session holds now.", "session")
	waiters          = describe("session_waiters", "Calls that wait for a lock now.", "session")
	connections      = describe("session_connections", "Database connections in use for locks; 0 while the database is away, or closed while idle.", "session")
	idleClosed       = describe("session_idle_closed", "1 while the connection is closed because no lock was needed, otherwise 0.", "session")
	exchangeDuration = describe("session_exchange_duration_seconds", "Round trips of the statements of locks, heartbeats included.", "session")
	exchangeKeys     = describe("session_exchange_keys", "Keys that a statement of locks carried.", "session")
	losses           = describe("session_losses_total", "Connections that were lost, by cause.", "session", "cause")
	locksLost        = describe("session_locks_lost_total", "Locks that ended with a lost connection.", "session")
	leaseRemaining   = describe("session_lease_remaining_seconds", "Time until locks are given up without another response; 0 without a connection.", "session")
	heartbeat        = describe("session_heartbeat_seconds", "Time between two heartbeats of an idle connection.", "session")
	utilization      = describe("session_lock_table_utilization_ratio", "Part of the server's lock table that all its clients use.", "session")

	findings = describe("watch_findings_total", "Findings of lockwatch.Watch, by kind and state.", "kind", "state")

	leader = describe("campaign_leader", "1 while this process leads, otherwise 0.", "campaign")
	terms  = describe("campaign_terms_total", "Terms that this process has begun.", "campaign")
)

// described holds all of the above.
var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("latchkey_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}
