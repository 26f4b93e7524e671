package session

import (
	"maps"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// Stats are the figures of a Session. Package sqllock documents each.
type Stats struct {
	keytable.Figures
	Connections                  int
	IdleClosed, Watched          bool
	Exchanges, Losses, LocksLost uint64
	LossesBy                     map[string]uint64
	RoundTrip, RoundTripMax      time.Duration
	Lease, Heartbeat             time.Duration
	LeaseRemaining               time.Duration
	TableSize, TableUsed         int
	ExchangeTime, ExchangeKeys   histogram.Snapshot
}

// Stats returns the figures of this moment.
func (s *Session) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counters
	stats := Stats{
		Figures: s.Table.Figures(), Exchanges: c.exchanges, Losses: c.losses, LocksLost: c.locksLost, LossesBy: maps.Clone(c.lossesBy),
		RoundTrip: c.roundTrip, RoundTripMax: c.roundTripMax, TableSize: s.room.size, TableUsed: s.room.used,
		ExchangeTime: c.exchangeTime.Snapshot(), ExchangeKeys: c.exchangeKeys.Snapshot(), IdleClosed: s.idleClosed(),
		Lease: s.options.Lease, Heartbeat: s.options.Heartbeat,
	}
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

// A Connection is what a Session believes of one of its connections. Package
// sqllock documents it.
type Connection struct {
	Process        dialect.Process
	LeaseRemaining time.Duration
	Held           []keytable.ID
	Shared         []keytable.ID
}

// Connections returns what the Session believes, all of one moment.
func (s *Session) Connections() (list []Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if c := sl.conn; c != nil && !c.dead.Load() {
			list = append(list, c.describe())
		}
	}
	return list
}

func (c *connection) describe() Connection {
	d := Connection{LeaseRemaining: c.remaining()}
	if b, ok := c.session.(dialect.Backend); ok {
		d.Process = b.Process()
	}
	c.s.Table.Each(&c.owner, func(v keytable.View) {
		switch {
		case !v.Settled:
		case v.Mode == keytable.Shared:
			d.Shared = append(d.Shared, v.ID)
		default:
			d.Held = append(d.Held, v.ID)
		}
	})
	return d
}
