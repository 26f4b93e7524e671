package ticks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// hooked is a Locker that calls a function with each lock before the caller has it.
type hooked struct {
	sqllock.Locker
	locked func(*sqllock.Lock)
}

func (l hooked) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	lock, err := l.Locker.TryLock(ctx, key)
	if err == nil {
		l.locked(lock)
	}
	return lock, err
}

// An instance that is late for a tick finds out that the tick was run. Meanwhile
// it does not keep others from the next tick.
func TestLateForTick(t *testing.T) {
	eachDriver(t, func(t *place) {
		const every = 10 * time.Second
		clock := newHandClock()
		s := Every(every)
		punctual := t.instance(WithClock(clock.Now))
		run := func() {
			if err := punctual.Do(t.Context(), "report", s, func(context.Context) {}); err != nil {
				t.Errorf("the tick at its time: %v", err)
			}
		}
		run()
		next := false
		late := New(hooked{t.session(), func(*sqllock.Lock) {
			clock.forward(every)
			next = true
			run()
		}}, t.db, "cron", WithClock(clock.behind(every/5)))
		clock.forward(every / 2)
		if _, err := late.Begin(t.Context(), "report", s); err != watermark.ErrPassed {
			t.Errorf("Begin of a tick that was run: %v, want ErrPassed", err)
		}
		if !next { // it has not even asked for the lock
			clock.forward(every)
			run()
		}
	})
}

// Clocks differ by up to 5.5 s and in their speed, over a minute with a tick in
// each second. Each tick is run once, whichever instance comes when.
func TestFleetWithSkewedClocks(t *testing.T) {
	fleet := []struct{ behind, late time.Duration }{
		{0, 0},
		{0, 70 * time.Millisecond},
		{2300 * time.Millisecond, 0},
		{-3200 * time.Millisecond, 30 * time.Millisecond},
		{-3200 * time.Millisecond, 80 * time.Millisecond},
	}
	eachDriver(t, func(t *place) {
		clock := newHandClock()
		s := Every(time.Second)
		var (
			told  record
			ticks []*Ticks
		)
		for _, f := range fleet {
			ticks = append(ticks, t.instance(WithClock(clock.behind(f.behind-f.late)), WithObserver(told.observer())))
		}
		for range 600 {
			for i, f := range fleet {
				if now := clock.behind(f.behind)(); now.Truncate(time.Second) != now { // its scheduler sleeps
					continue
				}
				err := ticks[i].Do(t.Context(), "report", s, func(context.Context) {})
				if err != nil && err != watermark.ErrPassed {
					t.Fatal(err)
				}
			}
			clock.forward(100 * time.Millisecond)
		}
		if n := told.once(t.T, s); n != 1+60 || len(told.began) != n { // one before the clock that is ahead had its first
			t.Errorf("%d runs of %d ticks, want 61", len(told.began), n)
		}
	})
}

// A run that outlives its tick keeps the next ones from being run, and says so
// when it ends.
func TestRunOutlivesTick(test *testing.T) {
	t := onDatabase(test)
	clock := newHandClock()
	s := Every(10 * time.Second)
	var told record
	one := t.instance(WithClock(clock.Now), WithObserver(told.observer()))
	other := t.instance(WithClock(clock.Now), WithObserver(told.observer()))
	run, err := one.Begin(t.Context(), "report", s)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		clock.forward(10 * time.Second)
		for name, ticks := range map[string]*Ticks{"the same instance": one, "another": other} {
			if _, err := ticks.Begin(t.Context(), "report", s); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("Begin of a later tick by %s: %v, want ErrHeld", name, err)
			}
		}
	}
	clock.forward(5 * time.Second)
	if err := run.End(); err != nil {
		t.Fatal(err)
	}
	if len(told.ended) != 1 || told.ended[0].Outlived != 2 || told.ended[0].Took != 25*time.Second || len(told.refused) != 4 {
		t.Errorf("the observer was told of %d ends and %d refusals: %+v", len(told.ended), len(told.refused), told.ended)
	}
	clock.forward(5 * time.Second)
	if run, err = other.Begin(t.Context(), "report", s); err != nil {
		t.Fatalf("Begin after it: %v", err)
	}
	if err := run.End(); err != nil {
		t.Error(err)
	}
	if n := told.once(t.T, s); n != 2 {
		t.Errorf("%d ticks were run, want 2", n)
	}
}

// The work's context ends with the caller's, and when the lock is lost; then Do
// says so.
func TestWorkHearsOfLoss(test *testing.T) {
	t := onDatabase(test)
	ticks := t.instance()
	err := ticks.Do(t.Context(), "report", Every(time.Hour), func(ctx context.Context) {
		if tick, ok := TickFromContext(ctx); !ok || !tick.Equal(tick.Truncate(time.Hour)) {
			t.Errorf("the work's tick is %v, %t, want the hour's", tick, ok)
		}
		t.cut()
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != sqllock.ErrLost {
			t.Errorf("the work's context ended with %v, want ErrLost", cause)
		}
	})
	if err != sqllock.ErrLost {
		t.Errorf("Do: %v, want ErrLost", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_ = ticks.Do(ctx, "another", Every(time.Hour), func(ctx context.Context) {
		cancel()
		<-ctx.Done()
	})
}

// An instance whose clock is a day ahead must not silence the others for a day.
func TestClockFarAhead(test *testing.T) {
	t := onDatabase(test)
	s := Every(time.Second)
	ahead := func(by time.Duration) *Ticks {
		return t.instance(WithClock(func() time.Time { return time.Now().Add(by) }), WithMaxAhead(time.Hour))
	}
	if _, err := ahead(24*time.Hour).Begin(t.Context(), "report", s); err != ErrClockAhead {
		t.Errorf("Begin by a clock that is a day ahead: %v, want ErrClockAhead", err)
	}
	run, err := ahead(0).Begin(t.Context(), "report", s)
	if err != nil {
		t.Fatalf("Begin by a clock that is right: %v", err)
	}
	if err := run.End(); err != nil {
		t.Error(err)
	}
	if run, err = ahead(30*time.Minute).Begin(t.Context(), "report", s); err != nil {
		t.Fatalf("Begin by a clock that is not too far ahead: %v", err)
	}
	if err := run.End(); err != nil {
		t.Error(err)
	}
}
