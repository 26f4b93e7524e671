package main

import (
	"time"

	"github.com/robfig/cron/v3"
)

// A Schedule says when a job is due: those of robfig/cron are schedules, and gocron's Cron implementations.
// Next is the first tick after t, or zero if there is none.
//
// Its ticks must be the same for all instances: a function of the time alone, in one location. Those of a cron
// expression are, if all instances have the same time zone, by CRON_TZ=, cron.WithLocation or their
// environment.
type Schedule interface{ Next(t time.Time) time.Time }

// Every is the schedule of an interval: its ticks are the multiples of d since the zero time, not since the
// instance's start, at whatever moments in between the instances run the job. It panics if d is not positive.
func Every(d time.Duration) Schedule {
	if d <= 0 {
		panic("cron: Every needs a positive interval")
	}
	return every(d)
}

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// common is s with ticks that all instances have in common. Those of "@every 5s" in a cron expression count
// from an instance's start: Every takes their place. It panics if s is of another kind whose ticks depend on
// when it is asked.
func common(s Schedule) Schedule {
	if s == nil {
		panic("cron: no schedule")
	}
	if s, ok := s.(cron.ConstantDelaySchedule); ok {
		return Every(s.Delay)
	}
	next := s.Next(time.Now())
	if !next.IsZero() && !s.Next(next.Add(-1)).Equal(next) {
		panic("cron: the ticks of the schedule depend on when it is asked: instances would not agree on them (use Every)")
	}
	return s
}

// horizon is how far back a last tick is looked for. A cron expression that has none in five years has none.
const horizon = 5 * 366 * 24 * time.Hour

// latestTick is the last tick of s at now or before it, if there is one.
func latestTick(s Schedule, now time.Time) (tick time.Time, ok bool) {
	due := func(t time.Time) bool {
		next := s.Next(t)
		return !next.IsZero() && !next.After(now)
	}
	before, after := now.Add(-horizon), now // a tick is due between before and now, and none between after and now
	if !due(before) {
		return time.Time{}, false
	}
	for after.Sub(before) > 1 {
		if middle := before.Add(after.Sub(before) / 2); due(middle) {
			before = middle
		} else {
			after = middle
		}
	}
	return s.Next(before), true
}

// maxEarly is not a whole second: an instance that comes at whole seconds from its start would stand on that
// border, now before it and now behind, and mean one tick twice and the next one never.
const maxEarly = 900 * time.Millisecond

// tickFor is the tick for which a scheduler that runs a job at now does so: not now itself, of which every
// instance has another, but the latest tick. Timers run by another clock than the one that people set, so one
// may fire a little early: a tick that is due within a tenth of the interval, and maxEarly, is meant already.
func tickFor(s Schedule, now time.Time) (tick time.Time, ok bool) {
	early := time.Duration(0)
	if next := s.Next(now); !next.IsZero() {
		if after := s.Next(next); !after.IsZero() {
			early = min(after.Sub(next)/10, maxEarly)
		}
	}
	return latestTick(s, now.Add(early))
}

// dueBetween counts the ticks of s after tick and until now, up to a thousand.
func dueBetween(s Schedule, tick, now time.Time) (n int) {
	for next := s.Next(tick); !next.IsZero() && !next.After(now) && n < 1000; next = s.Next(next) {
		n++
	}
	return n
}
