package sqllock

import "time"

// Stats is what a [Session] is doing and has done.
type Stats struct {
	Held        int    // locks held, or being given back
	Waiting     int    // calls of Lock and LockAny that wait
	Connections int    // database connections in use; 0 while the database is away
	Exchanges   uint64 // statements of locks answered, heartbeats included
	Losses      uint64 // connections lost, with every lock on them
	Watched     bool   // a closed connection is noticed at once, not by the next heartbeat

	RoundTrip    time.Duration // of a statement, smoothed; 0 before the first
	RoundTripMax time.Duration // the longest so far
}

// Stats returns the Session's figures of this moment.
func (s *Session) Stats() Stats {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	stats := Stats{
		Held:         s.table.held,
		Waiting:      s.table.waiting,
		Exchanges:    s.counters.exchanges,
		Losses:       s.counters.losses,
		RoundTrip:    s.counters.roundTrip,
		RoundTripMax: s.counters.roundTripMax,
	}
	for _, sl := range s.slots {
		if sl.conn != nil && !sl.conn.dead.Load() {
			stats.Connections++
			stats.Watched = sl.conn.watch != nil
		}
	}
	return stats
}

// counters is what Stats adds up; protected by table.mu.
type counters struct {
	exchanges, losses       uint64
	roundTrip, roundTripMax time.Duration
}

// exchanged counts a statement that took d. The smoothed time moves by an
// eighth of the difference, as TCP's (RFC 6298).
func (c *counters) exchanged(d time.Duration) {
	c.exchanges++
	if c.roundTrip == 0 {
		c.roundTrip = d
	} else {
		c.roundTrip += (d - c.roundTrip) / 8
	}
	c.roundTripMax = max(c.roundTripMax, d)
}
