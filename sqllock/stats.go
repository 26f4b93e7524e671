package sqllock

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// The figures of a Session, for metrics and logs.

// Stats are the figures of a [Session], for metrics and logs. Totals begin with
// the Session, and only grow. No figure is about a single key.
type Stats struct {
	Held        int    // locks held, or being given back
	Waiting     int    // calls of Lock, LockAny and LockAll that wait
	Connections int    // database connections in use; 0 while the database is away, or closed while idle
	IdleClosed  bool   // Connections is 0 because no lock was needed (WithIdleClose), and the next call opens one
	Exchanges   uint64 // statements answered on the connections that hold locks, with heartbeats and rejected batches
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
	e := s.session.Stats()
	return Stats{
		Held: e.Held, Waiting: e.Waiting, Connections: e.Connections, IdleClosed: e.IdleClosed,
		Exchanges: e.Exchanges, Losses: e.Losses, Watched: e.Watched,
		RoundTrip: e.RoundTrip, RoundTripMax: e.RoundTripMax,
		Lease: e.Lease, Heartbeat: e.Heartbeat, LeaseRemaining: e.LeaseRemaining,
		TableSize: e.TableSize, TableUsed: e.TableUsed, LocksLost: e.LocksLost, LossesBy: e.LossesBy,
		Granted: e.Granted, Denied: e.Denied, Canceled: e.Canceled, Failed: e.Failed,
		ExchangeTime: Histogram(e.ExchangeTime.Snapshot()), ExchangeKeys: Histogram(e.ExchangeKeys.Snapshot()),
	}
}

// A Connection is what a [Session] believes of one of its connections. The
// database has a lock for each key of Held and Shared. It may have more: of keys
// that a statement requests or releases, and of the checks of key secrets.
//
// Invariant: no key is in both lists, or twice in one. The keys are numbers,
// without a namespace: they equal those of [ID] and [Pair].
type Connection struct {
	// The server process: its number, and when it started by the server's clock.
	// On MySQL and MariaDB it is the connection's id, without a start. PID is 0
	// if it is not known, as behind a pooler or in a lease table.
	PID   int64
	Start time.Time

	LeaseRemaining time.Duration // how long the locks are certainly held without another response; 0 at the end

	Held   []Key // exclusively; no statement is under way for them, or about to be
	Shared []Key // the same, by readers
}

// Connections returns what the Session believes of each of its connections, all
// of one moment. A connection that is lost is not in the list, nor is one that
// is being opened. It asks no database. It takes some 50 µs for each thousand
// locks, and calls for locks wait meanwhile.
func (s *Session) Connections() (list []Connection) {
	s.session.Connections(func(p dialect.Process, remaining time.Duration) func(keytable.View) {
		list = append(list, Connection{PID: p.PID, LeaseRemaining: remaining})
		c := &list[len(list)-1]
		if p.Start != 0 {
			c.Start = time.UnixMicro(p.Start)
		}
		return func(v keytable.View) {
			key := Key{space: dialect.Space(v.ID.Space), number: v.ID.Number}
			switch {
			case !v.Settled:
			case v.Mode == keytable.Shared:
				c.Shared = append(c.Shared, key)
			default:
				c.Held = append(c.Held, key)
			}
		}
	})
	return list
}
