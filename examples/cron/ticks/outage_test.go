package ticks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
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
