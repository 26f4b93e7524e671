package ticks

import (
	"bytes"
	"context"
	"log"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// crontab is a cron of an instance whose clock is wrong by some time.
type crontab struct {
	cron  *cron.Cron
	clock *skew.Clock
	ticks *Ticks
}

func newCrontab(t *testing.T, driver, dsn string, by time.Duration, told *record) *crontab {
	t.Helper()
	c := &crontab{cron: cron.New(), clock: skew.NewClock(by)}
	c.ticks = New(session(t, driver, dsn), open(t, driver, dsn), "cron", WithClock(c.clock.Now), WithObserver(told.observer()))
	t.Cleanup(func() { <-c.cron.Stop().Done() })
	return c
}

// add schedules job as a reader would, with Recover outside.
func (c *crontab) add(ctx context.Context, logger cron.Logger, name string, s cron.Schedule, job cron.Job) {
	c.cron.Schedule(c.clock.Shift(s), cron.NewChain(cron.Recover(logger), Singleton(ctx, c.ticks, name, s)).Then(job))
}

// Instances of robfig/cron whose clocks differ run each tick once.
func TestRobfig(t *testing.T) {
	for name, expression := range map[string]string{"expression": "* * * * * *", "interval": "@every 1s"} {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, driver, dsn string) {
				var (
					told record
					runs atomic.Int64
				)
				for _, by := range []time.Duration{0, 0, 1300 * time.Millisecond, -2400 * time.Millisecond} {
					c := newCrontab(t, driver, dsn, by, &told)
					c.add(t.Context(), cron.DiscardLogger, "report", parse(t, expression), JobFunc(func(context.Context) { runs.Add(1) }))
					c.cron.Start()
				}
				lockertest.Eventually(t, "4 ticks were run and 4 refused, which another had run", func() bool {
					told.mu.Lock()
					defer told.mu.Unlock()
					return len(told.ended) >= 4 && len(told.refused) >= 4
				})
				told.once(t, common(parse(t, expression)))
				if runs.Load() < 4 {
					t.Errorf("the job was run %d times", runs.Load())
				}
			})
		})
	}
}

// A job that panics releases the lock, and cron.Recover reports the panic. The
// next tick is run.
func TestRobfigPanic(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		var (
			told record
			out  bytes.Buffer // written to by one goroutine at a time: the lock sees to that
		)
		c := newCrontab(t, driver, dsn, 0, &told)
		logger := cron.PrintfLogger(log.New(&out, "", 0))
		c.add(t.Context(), logger, "report", parse(t, "* * * * * *"), JobFunc(func(context.Context) { panic("out of paper") }))
		c.cron.Start()
		lockertest.Eventually(t, "two ticks were run", func() bool {
			told.mu.Lock()
			defer told.mu.Unlock()
			return len(told.ended) >= 2
		})
		<-c.cron.Stop().Done()
		for _, e := range told.ended {
			if !e.Panicked || e.Err != nil {
				t.Errorf("the observer was told of %+v", e)
			}
		}
		if n := strings.Count(out.String(), "out of paper"); n < 2 {
			t.Errorf("cron.Recover has reported %d panics: %s", n, out.String())
		}
		if n := locks(t, open(t, driver, dsn)); n != 0 {
			t.Errorf("%d locks are held", n)
		}
	})
}

// plain is a job that knows nothing of contexts.
type plain struct{ ran *bool }

func (p plain) Run() { *p.ran = true }

func TestRobfigPlainJob(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		var told record
		c := newCrontab(t, driver, dsn, 0, &told)
		ran := false
		Singleton(t.Context(), c.ticks, "report", parse(t, "* * * * *"))(plain{&ran}).Run()
		if !ran {
			t.Errorf("it was not run: %+v", told.refused)
		}
		JobFunc(func(ctx context.Context) { ran = ctx.Err() != nil }).Run()
		if ran {
			t.Error("a job that is not wrapped has an ended context")
		}
	})
}
