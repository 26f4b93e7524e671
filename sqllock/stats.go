package sqllock

import (
	"maps"
	"time"
)

// The figures of a Session, for metrics and logs.

// Stats are the figures of a [Session], for metrics and logs. Totals begin with
// the Session, and only grow. No figure is about a single key.
type Stats struct {
	Held        int    // locks held, or being given back
	Waiting     int    // calls of Lock, LockAny and LockAll that wait
	Connections int    // database connections in use; 0 while the database is away, or closed while idle
	IdleClosed  bool   // Connections is 0 because no lock was needed (WithIdleClose), and the next call opens one
	Exchanges   uint64 // statements of locks answered, heartbeats included
	Losses      uint64 // connections lost, with every lock on them
	Watched     bool   // a closed connection is noticed at once, not by the next heartbeat; of several, the one opened last

	RoundTrip    time.Duration // of one of Exchanges, smoothed; 0 before the first
	RoundTripMax time.Duration // the longest since the Session began; a single pause keeps it high

	// The settings in use: those of WithLease and WithHeartbeat, or the
	// defaults. They are 0 while a Session of WithLazyOpen does not know its
	// database.
	Lease, Heartbeat time.Duration

	// LeaseRemaining is how long the locks are certainly held without another
	// response of the database. Of several connections it is the smallest. It
	// is 0 while there is no connection.
	LeaseRemaining time.Duration

	// TableSize and TableUsed are the places of the server's lock table, which
	// all its clients share, and those in use by any of them. They are as old
	// as a heartbeat. They are 0 if they are not known, or if the database has
	// no such table: only PostgreSQL has.
	TableSize, TableUsed int

	// LocksLost counts the locks that ended with a lost connection.
	LocksLost uint64

	// LossesBy has Losses by their cause. It always has each of these, also
	// with 0:
	//
	//	lease          no response for four fifths of the lease, or this process stood still as long
	//	connection     the connection ended, or the row of the Session in a lease table
	//	not_exclusive  another server process responded, or the server is no primary any more
	//	lock_missing   the server did not have a lock that it had granted
	LossesBy map[string]uint64

	// Calls for locks by their result: a lock (Granted), ErrHeld (Denied), the
	// end of the caller's own context (Canceled), or another error (Failed). A
	// wait that times out because the key is busy is Canceled; one during which
	// the database was away is Failed. Each call counts once, when it returns. A
	// call for a set of keys is one call.
	Granted, Denied, Canceled, Failed uint64

	// ExchangeTime has the round trip of each of Exchanges, and ExchangeKeys
	// the keys that it requested and released. A heartbeat has none.
	ExchangeTime, ExchangeKeys Histogram
}

// A Histogram counts values by how large they are. Durations are in seconds. It
// is a copy, which the caller may change.
type Histogram struct {
	Bounds []float64 // upper bounds of the buckets, ascending; a value that equals a bound is in its bucket
	Counts []uint64  // values by bucket, not cumulative: one more than Bounds, for the values above the last
	Count  uint64    // the sum of Counts
	Sum    float64   // of the values
}

// Stats returns the figures of the Session at this moment. It is cheap: it asks
// no database.
func (s *Session) Stats() Stats {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	c, calls := &s.counters, &s.table.calledBy
	stats := Stats{
		Held:         s.table.held,
		Waiting:      s.table.waiting,
		Exchanges:    c.exchanges,
		Losses:       c.losses,
		RoundTrip:    c.roundTrip,
		RoundTripMax: c.roundTripMax,

		TableSize:    s.room.size,
		TableUsed:    s.room.used,
		LocksLost:    c.locksLost,
		LossesBy:     maps.Clone(c.lossesBy),
		Granted:      calls.granted,
		Denied:       calls.denied,
		Canceled:     calls.canceled,
		Failed:       calls.failed,
		ExchangeTime: Histogram(c.exchangeTime.Snapshot()),
		ExchangeKeys: Histogram(c.exchangeKeys.Snapshot()),
	}
	stats.Lease, stats.Heartbeat = s.options.timing()
	stats.IdleClosed = s.idleClosedLocked()
	for _, sl := range s.slots {
		if sl.conn == nil || sl.conn.dead.Load() {
			continue
		}
		remaining := sl.conn.remaining()
		if stats.Connections == 0 || remaining < stats.LeaseRemaining {
			stats.LeaseRemaining = remaining
		}
		stats.Connections++
		stats.Watched = sl.conn.watch != nil
	}
	return stats
}

// timing returns the lease and the heartbeat, or 0 for what is not known yet,
// because it depends on the dialect.
func (o *options) timing() (lease, heartbeat time.Duration) {
	known := o.leaseSet || o.dialect != nil
	if known {
		lease = o.lease
	}
	if known || o.beatSet {
		heartbeat = o.heartbeat
	}
	return lease, heartbeat
}
