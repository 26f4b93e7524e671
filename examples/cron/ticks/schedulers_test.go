package ticks

import (
	"bytes"
	"context"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// startRobfig starts a cron of an instance whose clock is ahead by a time, as a
// reader would do it, with Recover outside.
func (p *place) startRobfig(ahead time.Duration, s cron.Schedule, logger cron.Logger, work func(context.Context)) (stop func()) {
	p.Helper()
	clock, c := newSkewedClock(ahead), cron.New()
	c.Schedule(clock.Shift(s), cron.NewChain(cron.Recover(logger)).Then(Job(p.Context(), p.instance(clock.Now), "report", s, work)))
	c.Start()
	stop = func() { <-c.Stop().Done() }
	p.Cleanup(stop)
	return stop
}

// startGocron does the same for gocron.
func (p *place) startGocron(ahead, every time.Duration, work func(context.Context)) {
	p.Helper()
	clock := newSkewedClock(ahead)
	s, err := gocron.NewScheduler(gocron.WithClock(clock))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = s.Shutdown() })
	if _, err := s.NewJob(gocron.DurationJob(every), Task(p.instance(clock.Now), "report", Every(every), work)); err != nil {
		p.Fatal(err)
	}
	s.Start()
}

// Instances of each scheduler whose clocks differ, and which started at different
// moments, run each tick once.
func TestSchedulers(t *testing.T) {
	const interval = 200 * time.Millisecond
	for name, tt := range map[string]struct {
		schedule Schedule
		start    func(t *place, ahead time.Duration, r *record)
	}{
		"robfig/cron, expression": {Every(time.Second), func(t *place, ahead time.Duration, r *record) {
			t.startRobfig(ahead, parse(t, "* * * * * *"), cron.DiscardLogger, r.work)
		}},
		"robfig/cron, interval": {Every(time.Second), func(t *place, ahead time.Duration, r *record) {
			t.startRobfig(ahead, parse(t, "@every 1s"), cron.DiscardLogger, r.work)
		}},
		"gocron": {Every(interval), func(t *place, ahead time.Duration, r *record) { t.startGocron(ahead, interval, r.work) }},
	} {
		t.Run(name, func(test *testing.T) {
			t := onDatabase(test)
			var r record
			for _, ahead := range []time.Duration{0, 530 * time.Millisecond, 1300 * time.Millisecond, -2400 * time.Millisecond} {
				tt.start(t, ahead, &r)
			}
			lockertest.Eventually(test, "ticks are run", func() bool { return r.once(test, tt.schedule) >= 3 })
		})
	}
}

// A job that panics releases the lock, and cron.Recover reports the panic. The
// next tick is run.
func TestPanic(test *testing.T) {
	t := onDatabase(test)
	var (
		r   record
		out bytes.Buffer // written to by one goroutine at a time: the lock sees to that
	)
	stop := t.startRobfig(0, parse(t, "* * * * * *"), cron.PrintfLogger(log.New(&out, "", 0)), func(ctx context.Context) {
		r.work(ctx)
		panic("out of paper")
	})
	lockertest.Eventually(test, "it panics twice", func() bool { return r.once(test, Every(time.Second)) >= 2 })
	stop()
	if n := strings.Count(out.String(), "out of paper"); n < 2 || !strings.Contains(t.log.String(), "panicked=true") {
		t.Errorf("cron.Recover has reported %d panics: %s\nand the log has\n%s", n, out.String(), t.log.String())
	}
	if n := dbtest.AdvisoryLocks(t, t.db); n != 0 {
		t.Errorf("%d locks are held", n)
	}
}
