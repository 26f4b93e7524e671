package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// awayFor is how long the database is away, at the least.
const awayFor = 3 * time.Second

// Instances of both schedulers that lose their database for some seconds say so, do not run a tick twice, and
// go on by themselves.
func TestSchedulersThroughOutage(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
			dsn := cluster.DSN("")
			execute(t, open(t, driver, dsn), sqllock.MarkSchema)
			var robfig, locker record
			for _, by := range []time.Duration{0, 1700 * time.Millisecond, -1100 * time.Millisecond} {
				c := newCrontab(t, driver, dsn, by, &robfig)
				s := parse(t, "* * * * * *")
				c.cron.Schedule(c.clock.shift(s), Singleton(t.Context(), c.ticks, "robfig", s)(JobFunc(func(context.Context) {})))
				c.cron.Start()

				clock := newSkewedClock(by)
				g := scheduler(t, clock)
				newJob(t, g, func() {}, gocron.WithDistributedJobLocker(NewLocker(instance(t, driver, dsn, clock, &locker), Every(interval))))
				g.Start()
			}
			atLeast(t, &robfig, 2, 1)
			atLeast(t, &locker, 5, 1)
			if err := cluster.Restart(true); err != nil { // a crash
				t.Fatal(err)
			}
			goOn(t, &robfig, &locker)
			if err := cluster.Stop(); err != nil {
				t.Fatal(err)
			}
			back := time.Now().Add(awayFor)
			for _, r := range []*record{&robfig, &locker} {
				lockertest.Eventually(t, "they say that the database is away", func() bool {
					r.mu.Lock()
					defer r.mu.Unlock()
					return time.Now().After(back) && errors.Is(r.refused[len(r.refused)-1].Err, sqllock.ErrUnavailable)
				})
			}
			if err := cluster.StartAgain(); err != nil {
				t.Fatal(err)
			}
			goOn(t, &robfig, &locker)
			robfig.once(t, Every(time.Second))
			locker.once(t, Every(interval))
		})
	}
}

// goOn waits until more ticks were run, by each of rs.
func goOn(t *testing.T, rs ...*record) {
	t.Helper()
	for _, r := range rs {
		r.mu.Lock()
		before := len(r.ended)
		r.mu.Unlock()
		atLeast(t, r, before+3, 0)
	}
}
