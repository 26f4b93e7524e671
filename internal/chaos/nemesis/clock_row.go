package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/sqllock"
)

// farStep is how far a clock steps that somebody has set right.
const farStep = 10 * time.Second

// clockSteps steps the clock of a server of its own: first as far as the promise
// of locks reaches, then beyond, where that of the fence still does.
func clockSteps(ctx context.Context, f *Field) (victim *fleet.Member, err error) {
	s := &stepped{f: f}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	within, err := s.during(ctx, s.within)
	if err != nil {
		return nil, err
	}
	report := check.Sweep(within)
	if err := errors.Join(believed(report), overlapping(report), s.undisturbed()); err != nil {
		return nil, fmt.Errorf("steps that are promised to do no harm: %w", err)
	}
	beyond, err := s.during(ctx, s.beyond)
	if err != nil {
		return nil, err
	}
	report = check.Sweep(beyond)
	f.outside += len(report.Overlaps)
	rows, err := s.data.stored(ctx)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(believed(report), check.Tokens(rows), check.Writes(append(within, beyond...), rows))
}

// believed is what must hold whatever the clocks do.
func believed(r *check.Report) error {
	err := r.Malformed
	if n := len(r.Resurrected); n > 0 {
		err = errors.Join(err, fmt.Errorf("%w: %d times, first %+v", check.ErrResurrected, n, r.Resurrected[0]))
	}
	return err
}

func overlapping(r *check.Report) error {
	if n := len(r.Overlaps); n > 0 {
		return fmt.Errorf("%w: %d times, first %+v", check.ErrOverlap, n, r.Overlaps[0])
	}
	return nil
}

// within steps back as far as you like, and forward by σ, a tenth of the lease,
// at the worst moment: when somebody was just cut off, whose lock the server
// will free early by as much.
func (s *stepped) within(ctx context.Context) error {
	if err := s.cluster.StepClock(-s.f.between(0, 1, farStep)); err != nil {
		return err
	}
	if err := s.dispute(ctx, s.f.between(0.5, 1, s.f.Lease/10)); err != nil {
		return err
	}
	return s.cluster.StepClock(-s.f.between(0, 1, farStep))
}

// beyond steps forward by more than any lease, and back.
func (s *stepped) beyond(ctx context.Context) error {
	if err := s.dispute(ctx, farStep); err != nil {
		return err
	}
	if err := s.cluster.StepClock(-farStep); err != nil {
		return err
	}
	return free(ctx, s.far, disputed, recoverWithin)
}

// undisturbed checks that who can always speak with the server has lost nothing.
func (s *stepped) undisturbed() error {
	for _, g := range s.near {
		if n := g.Stats().Losses; n > 0 {
			return fmt.Errorf("a session that was not silent was lost %d times", n)
		}
	}
	return nil
}

// dispute has far cut off with a lock, steps the clock by d, and waits until a
// near one has the lock and has written, and far knows of its loss.
func (s *stepped) dispute(ctx context.Context, d time.Duration) (err error) {
	limited, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	lock, err := s.far.Lock(limited, disputed)
	if err != nil {
		return err
	}
	first := s.diary.keep(farProcess, lock)
	if err := s.data.noted(ctx, first); err != nil { // it has its token now
		return errors.Join(err, lock.Unlock())
	}
	if err := s.age(ctx); err != nil {
		return errors.Join(err, lock.Unlock())
	}
	down, err := s.link.Hold()
	if err != nil {
		return errors.Join(err, lock.Unlock())
	}
	defer func() { err = errors.Join(err, down.Mend()) }()
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		first.stay(limited)
		first.giveBack()
	}()
	defer func() { cancel(); <-lost }()
	if err := s.cluster.StepClock(d); err != nil {
		return err
	}
	return s.succeed(limited, first)
}

// age has far speak with the server twice, with a while between. The server's
// alarm for a silent session is that of the first time, and put off when it
// rings: then it looks at the clock, and a step has its whole effect.
func (s *stepped) age(ctx context.Context) error {
	other := sqllock.Namespace("clock").Key("other")
	if err := free(ctx, s.far, other, recoverWithin); err != nil {
		return err
	}
	if err := last(ctx, s.f.between(0.1, 0.5, s.f.Lease)); err != nil {
		return err
	}
	return free(ctx, s.far, other, recoverWithin)
}

// succeed has a near guest take the disputed key and write, and checks that the
// one before it cannot write any more. It goes on until that one knows.
func (s *stepped) succeed(ctx context.Context, before *kept) error {
	for {
		i := s.f.Rand.IntN(len(s.near))
		lock, err := seize(ctx, s.near[i], disputed)
		if err != nil {
			return err
		}
		k := s.diary.keep(farProcess+1+i, lock)
		outlived, err := s.outlive(ctx, k, before)
		k.giveBack()
		if outlived || err != nil {
			return err
		}
	}
}

// seize takes key in the moment in which it becomes free: who waits in Lock may
// ask a while later.
func seize(ctx context.Context, g *guest, key sqllock.Key) (*sqllock.Lock, error) {
	for {
		lock, err := g.TryLock(ctx, key)
		if err == nil || !errors.Is(err, sqllock.ErrHeld) && !errors.Is(err, sqllock.ErrUnavailable) {
			return lock, err
		}
		if err := last(ctx, time.Millisecond); err != nil {
			return nil, fmt.Errorf("a key does not become free: %w", err)
		}
	}
}

// outlive is what the next holder does until the one before it knows of its
// loss. It reports false if the step of the clock has cost this one its session
// as well.
func (s *stepped) outlive(ctx context.Context, k, before *kept) (bool, error) {
	if !k.look() {
		return false, nil
	}
	err := s.data.noted(ctx, k)
	if errors.As(err, new(refusal)) {
		return false, nil
	}
	if err = errors.Join(err, mustRefuse(s.data.noted(ctx, before))); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before.OnEnd(func(error) { cancel() })
	k.stay(ctx)
	return true, nil
}
