// Package skew has clocks that are wrong by some seconds, for instances that
// share a machine.
package skew

import (
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
)

// A Clock is the machine's clock, ahead by a duration. It is a clock of gocron
// (gocron.WithClock).
type Clock struct {
	clockwork.Clock // timers

	by time.Duration
}

// NewClock returns a clock that is ahead by a duration.
func NewClock(by time.Duration) *Clock { return &Clock{clockwork.NewRealClock(), by} }

// Now returns the time by this clock.
func (c *Clock) Now() time.Time { return time.Now().Add(c.by) }

// Since returns the time since t by this clock.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Until returns the time until t by this clock.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Shift returns s as a machine with this clock has it. It is for robfig/cron,
// whose own clock cannot be set.
func (c *Clock) Shift(s cron.Schedule) cron.Schedule { return shifted{s, c.by} }

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
