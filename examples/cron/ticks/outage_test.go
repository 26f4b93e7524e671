package ticks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// An outageFleet is instances of each kind of scheduler, and the records of
// their observers.
type outageFleet struct {
	robfig, locker, elected record
	electors                [3]record
}

func startOutageFleet(t *place) *outageFleet {
	t.Helper()
	f := &outageFleet{}
	for i, by := range []time.Duration{0, 1700 * time.Millisecond, -1100 * time.Millisecond} {
		c := t.crontab(by, &f.robfig)
		s := parse(t, "* * * * * *")
		c.cron.Schedule(c.clock.Shift(s), Singleton(t.Context(), c.ticks, "robfig", s)(JobFunc(func(context.Context) {})))
		c.cron.Start()

		clock := skew.NewClock(by)
		g := scheduler(t.T, clock)
		ticks := t.instance(WithClock(clock.Now), WithObserver(f.locker.observer()))
		newJob(t.T, g, func() {}, gocron.WithDistributedJobLocker(NewLocker(ticks, Every(interval))))
		g.Start()

		e := NewElector(t.session(), key("leader"), f.electors[i].observer())
		ticks = New(t.session(), t.db, "elected", WithClock(clock.Now), WithObserver(f.elected.observer()))
		g = scheduler(t.T, clock, gocron.WithDistributedElector(e))
		newJob(t.T, g, func() {}, gocron.WithEventListeners(OncePerTick(t.Context(), ticks, Every(interval))))
		g.Start()
	}
	return f
}

// goesOn waits until more ticks were run, by schedulers of each kind.
func (f *outageFleet) goesOn(t *testing.T) {
	t.Helper()
	for _, r := range []*record{&f.robfig, &f.locker, &f.elected} {
		before := r.runs()
		lockertest.Eventually(t, "more ticks are run", func() bool { return r.runs() >= before+3 })
	}
}

// saysAway waits until the last that was reported is that the database is away,
// of jobs and by each Elector.
func (f *outageFleet) saysAway(t *testing.T) {
	t.Helper()
	for _, r := range []*record{&f.robfig, &f.locker, &f.electors[0], &f.electors[1], &f.electors[2]} {
		lockertest.Eventually(t, "they say that the database is away", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			n := len(r.refused)
			return n > 0 && errors.Is(r.refused[n-1].Err, sqllock.ErrUnavailable)
		})
	}
}

func (r *record) runs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.began)
}

// Instances of all schedulers that lose their database for some seconds say so,
// do not run a tick twice, and go on by themselves.
func TestLongSchedulersThroughOutage(test *testing.T) {
	test.Parallel()
	cluster := pgtest.New(test, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	t := newPlace(test, "pgx", cluster.DSN(""))
	f := startOutageFleet(t)
	f.goesOn(test)
	if err := cluster.Restart(true); err != nil { // a crash
		t.Fatal(err)
	}
	f.goesOn(test)
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	f.saysAway(test)
	ran := f.robfig.runs() + f.locker.runs() + f.elected.runs()
	f.saysAway(test)
	if n := f.robfig.runs() + f.locker.runs() + f.elected.runs(); n != ran {
		t.Errorf("%d ticks were run while the database is away", n-ran)
	}
	if err := cluster.StartAgain(); err != nil {
		t.Fatal(err)
	}
	f.goesOn(test)
	f.robfig.once(test, Every(time.Second))
	f.locker.once(test, Every(interval))
	f.elected.once(test, Every(interval))
}

// While the database is away no tick is run, and each instance says so.
// Afterwards they go on by themselves, and what was run before is not run
// again.
func TestLongDatabaseAway(test *testing.T) {
	test.Parallel()
	cluster := pgtest.New(test)
	t := newPlace(test, "pgx", cluster.DSN(""))
	clock := newHandClock()
	s := Every(time.Second)
	var (
		told  record
		fleet []*Ticks
	)
	for _, by := range []time.Duration{0, 2 * time.Second, 5 * time.Second} {
		fleet = append(fleet, t.instance(WithClock(clock.behind(by)), WithObserver(told.observer())))
	}
	run, err := fleet[0].Begin(t.Context(), "report", s)
	if err != nil {
		t.Fatal(err)
	}
	work, cancel := run.Bind(t.Context())
	defer cancel()
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	<-work.Done()
	if cause := context.Cause(work); cause != sqllock.ErrLost {
		t.Errorf("the work's context ended with %v, want ErrLost", cause)
	}
	if err := run.End(); err != sqllock.ErrLost {
		t.Errorf("End: %v, want ErrLost", err)
	}
	for range 10 {
		clock.forward(time.Second)
		for _, ticks := range fleet {
			_, err := ticks.Begin(t.Context(), "report", s)
			if !errors.Is(err, sqllock.ErrUnavailable) || strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("Begin while the database is away: %v, want ErrUnavailable without the host", err)
			}
		}
	}
	if err := cluster.StartAgain(); err != nil {
		t.Fatal(err)
	}
	// Those that are behind come to ticks that were due before the stop, too.
	for range 10 {
		for _, ticks := range fleet {
			lockertest.Eventually(test, "it runs a tick, or says that it was run", func() bool {
				run, err := ticks.Begin(t.Context(), "report", s)
				if err == nil {
					return run.End() == nil
				}
				return errors.Is(err, watermark.ErrPassed)
			})
		}
		clock.forward(time.Second)
	}
	if n := told.once(test, s); n != 1+10 {
		t.Errorf("%d ticks were run, want 1 before and 10 after", n)
	}
}
