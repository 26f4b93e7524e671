package ticks

import (
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
)

// A skewedClock is the machine's clock, ahead by a duration. It is a clock of gocron
// (gocron.WithskewedClock).
type skewedClock struct {
	clockwork.Clock // timers

	by time.Duration
}

// newSkewedClock returns a clock that is ahead by a duration.
func newSkewedClock(by time.Duration) *skewedClock { return &skewedClock{clockwork.NewRealClock(), by} }

// Now returns the time by this clock.
func (c *skewedClock) Now() time.Time { return time.Now().Add(c.by) }

// Since returns the time since t by this clock.
func (c *skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until returns the time until t by this clock.
func (c *skewedClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Shift returns s as a machine with this clock has it. It is for robfig/cron,
// whose own clock cannot be set.
func (c *skewedClock) Shift(s cron.Schedule) cron.Schedule { return shifted{s, c.by} }

type shifted struct {
	cron.Schedule

	by time.Duration
}

func (s shifted) Next(t time.Time) time.Time {
	next := s.Schedule.Next(t.Add(s.by))
	if next.IsZero() {
		return next
	}
	return next.Add(-s.by)
}
