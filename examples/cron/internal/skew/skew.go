package main

import (
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
)

// A skewedClock is the machine's, wrong by some seconds: the instances of the demonstration are on one machine.
type skewedClock struct {
	clockwork.Clock // timers
	by              time.Duration
}

func newSkewedClock(by time.Duration) *skewedClock { return &skewedClock{clockwork.NewRealClock(), by} }

// Now and what follows is gocron's clock, which can be set (gocron.WithClock).
func (c *skewedClock) Now() time.Time                  { return time.Now().Add(c.by) }
func (c *skewedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *skewedClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// shift is s for robfig/cron on a machine with this clock: its own cannot be set, so the schedule is shifted.
func (c *skewedClock) shift(s cron.Schedule) cron.Schedule { return shiftedSchedule{s, c.by} }

type shiftedSchedule struct {
	cron.Schedule
	by time.Duration
}

func (s shiftedSchedule) Next(t time.Time) time.Time {
	next := s.Schedule.Next(t.Add(s.by))
	if next.IsZero() {
		return next
	}
	return next.Add(-s.by)
}
