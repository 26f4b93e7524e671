package ticks

import (
	"time"

	"github.com/robfig/cron/v3"
)

// A Schedule says when a job is due. Schedules of robfig/cron are Schedules, and
// so are gocron's implementations of Cron. Next returns the first tick after t, or
// zero if there is none.
//
// Ticks must be the same for all instances: a function of the time alone, in one
// location. The ticks of a cron expression are, if all instances have the same
// time zone, from CRON_TZ=, cron.WithLocation or their environment.
type Schedule interface{ Next(t time.Time) time.Time }

// Every returns the schedule of an interval. Its ticks are the multiples of d
// since the zero time, not since the instance's start. At which moments between
// ticks the instances come does not matter.
//
// Every panics if d is not positive.
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

// common returns s with ticks that all instances have in common. The ticks of
// "@every 5s" in a cron expression count from an instance's start; Every replaces
// them. common panics if s is of another kind whose ticks depend on when it is
// asked.
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

// horizon is how far back latestTick searches. A cron expression without a tick
// in five years has none.
const horizon = 5 * 366 * 24 * time.Hour

// latestTick returns the last tick of s at now or before it, if there is one.
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

// maxEarly bounds how early a timer may fire. It is not a whole second: an instance
// that comes at whole seconds from its start would be on that border. It would
// come sometimes before and sometimes after it, and mean one tick twice and the
// next one never.
const maxEarly = 900 * time.Millisecond

// tickFor returns the tick that a scheduler means when it runs a job at now. It
// is the latest tick, since each instance has a different now.
//
// Timers go by another clock than the one that people set, so a timer may fire a
// little early. A tick that is due within a tenth of the interval, and within
// maxEarly, is meant already.
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
