package ticks

import (
	"bytes"
	"context"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
)

// crontab is a cron of an instance whose clock is wrong by some time.
type crontab struct {
	cron  *cron.Cron
	clock *skew.Clock
	ticks *Ticks
}

func (t *place) crontab(by time.Duration, told *record) *crontab {
	t.Helper()
	c := &crontab{cron: cron.New(), clock: skew.NewClock(by)}
	c.ticks = t.instance(WithClock(c.clock.Now), WithObserver(told.observer()))
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
		t.Run(name, func(test *testing.T) {
			t := onDatabase(test)
			var told record
			for _, by := range []time.Duration{0, 0, 1300 * time.Millisecond, -2400 * time.Millisecond} {
				c := t.crontab(by, &told)
				c.add(t.Context(), cron.DiscardLogger, "report", parse(t, expression), JobFunc(func(context.Context) {}))
				c.cron.Start()
			}
			atLeast(t.T, &told, 2, 2)
			told.once(t.T, common(parse(t, expression)))
		})
	}
}

// A job that panics releases the lock, and cron.Recover reports the panic. The
// next tick is run.
func TestRobfigPanic(test *testing.T) {
	t := onDatabase(test)
	var (
		told record
		out  bytes.Buffer // written to by one goroutine at a time: the lock sees to that
	)
	c := t.crontab(0, &told)
	logger := cron.PrintfLogger(log.New(&out, "", 0))
	c.add(t.Context(), logger, "report", parse(t, "* * * * * *"), JobFunc(func(context.Context) { panic("out of paper") }))
	c.cron.Start()
	atLeast(t.T, &told, 2, 0)
	<-c.cron.Stop().Done()
	for _, e := range told.ended {
		if !e.Panicked || e.Err != nil {
			t.Errorf("the observer was told of %+v", e)
		}
	}
	if n := strings.Count(out.String(), "out of paper"); n < 2 {
		t.Errorf("cron.Recover has reported %d panics: %s", n, out.String())
	}
	if n := t.locks(); n != 0 {
		t.Errorf("%d locks are held", n)
	}
}

// plain is a job that knows nothing of contexts.
type plain struct{ ran *bool }

func (p plain) Run() { *p.ran = true }

func TestRobfigPlainJob(test *testing.T) {
	t := onDatabase(test)
	var told record
	c := t.crontab(0, &told)
	ran := false
	Singleton(t.Context(), c.ticks, "report", parse(t, "* * * * *"))(plain{&ran}).Run()
	if !ran {
		t.Errorf("it was not run: %+v", told.refused)
	}
	JobFunc(func(ctx context.Context) { ran = ctx.Err() != nil }).Run()
	if ran {
		t.Error("a job that is not wrapped has an ended context")
	}
}
