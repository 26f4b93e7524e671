package session

import (
	"maps"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// Counters are what the connections of a Session count. The engine counts where
// it decides. Session.mu protects them.
type Counters struct {
	Exchanges, Losses, LocksLost uint64
	LossesBy                     map[string]uint64 // by cause
	RoundTrip, RoundTripMax      time.Duration
	ExchangeTime, ExchangeKeys   *histogram.Histogram
}

// newCounters returns counters at 0.
func newCounters() Counters {
	return Counters{
		LossesBy:     map[string]uint64{causeLease: 0, causeConnection: 0, causeNotExclusive: 0, causeLockMissing: 0},
		ExchangeTime: histogram.New(histogram.Seconds),
		ExchangeKeys: histogram.New(histogram.Keys),
	}
}

// exchanged counts a batch of so many keys that took d, or a heartbeat of
// another kind, which has none. The smoothed time moves by an eighth of the
// difference, like TCP's (RFC 6298).
func (c *Counters) exchanged(d time.Duration, keys int) {
	c.Exchanges++
	c.ExchangeTime.Observe(int64(d))
	c.ExchangeKeys.Observe(int64(keys))
	if c.RoundTrip == 0 {
		c.RoundTrip = d
	} else {
		c.RoundTrip += (d - c.RoundTrip) / 8
	}
	c.RoundTripMax = max(c.RoundTripMax, d)
}

// lost counts a lost connection with so many locks.
func (c *Counters) lost(cause string, locks int) {
	c.Losses++
	c.LossesBy[cause]++
	c.LocksLost += uint64(locks)
}

// Stats are the figures of a Session. Package sqllock documents each.
type Stats struct {
	keytable.Figures
	Counters
	Connections                      int
	IdleClosed, Watched              bool
	Lease, Heartbeat, LeaseRemaining time.Duration
	TableSize, TableUsed             int
}

// Stats returns the figures of this moment.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{
		Figures: s.Table.Figures(), Counters: s.counters, IdleClosed: s.idleClosed(),
		Lease: s.options.Lease, Heartbeat: s.options.Heartbeat, TableSize: s.room.size, TableUsed: s.room.used,
	}
	stats.LossesBy = maps.Clone(stats.LossesBy)
	for _, c := range s.connections() {
		remaining := c.remaining()
		if stats.Connections == 0 || remaining < stats.LeaseRemaining {
			stats.LeaseRemaining = remaining
		}
		stats.Connections++
		stats.Watched = c.watch != nil
	}
	return stats
}

// connections returns those that live.
func (s *Session) connections() (live []*connection) {
	for _, sl := range s.slots {
		if c := sl.conn; c != nil && !c.dead.Load() {
			live = append(live, c)
		}
	}
	return live
}

// Connections calls open for each connection, with its server process and how
// long its locks are certainly held. What open returns it calls for each key
// that the connection has. All are of one moment.
func (s *Session) Connections(open func(dialect.Process, time.Duration) func(keytable.View)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.connections() {
		s.Table.Each(&c.owner, open(c.process(), c.remaining()))
	}
}

// process returns the server process of c, or one without a PID.
func (c *connection) process() dialect.Process {
	if b, ok := c.session.(dialect.Backend); ok {
		return b.Process()
	}
	return dialect.Process{}
}
