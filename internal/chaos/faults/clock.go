package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// farStep is how far a clock may step when an operator sets it right.
const farStep = 10 * time.Second

// clockSteps steps the clock of a server of its own. The first steps are within
// the assumptions of docs/safety.md. The others are beyond them, where only the
// fence's guarantee holds.
func clockSteps(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
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
	if err := errors.Join(invariants(report), overlapping(report), s.undisturbed()); err != nil {
		return nil, violation("steps within the assumptions: %w", err)
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
	err = errors.Join(invariants(report), check.Tokens(rows), check.Writes(append(within, beyond...), rows))
	if err != nil {
		return nil, violation("%w", err)
	}
	return nil, nil
}

// invariants checks what must hold whatever the clocks do.
func invariants(r *check.Report) error {
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

// within steps back by any amount, and forward by at most σ, a tenth of the
// lease. It steps forward at the worst moment: just after a holder was cut off.
// The server frees that lock earlier by the same amount.
func (s *stepped) within(ctx context.Context) error {
	if err := s.step(ctx, -s.f.between(0, 1, farStep)); err != nil {
		return err
	}
	if _, err := s.contest(ctx, s.f.between(0.5, 1, s.f.Lease/10)); err != nil {
		return err
	}
	return s.step(ctx, -s.f.between(0, 1, farStep))
}

// beyond steps forward by more than any lease, and back. It repeats this until
// the fence stops a holder that had not been told of its loss: otherwise no
// step was beyond the assumptions.
func (s *stepped) beyond(ctx context.Context) error {
	for range 12 { // now and then far knows before; on a busy machine it often does
		reason, err := s.contest(ctx, farStep)
		if err != nil {
			return err
		}
		if err := s.step(ctx, -farStep); err != nil {
			return err
		}
		if err := free(ctx, s.far, contestedKey, recoverWithin); err != nil {
			return err
		}
		if errors.Is(reason, sqllock.ErrFenced) {
			return nil
		}
	}
	return errors.New("no step of the clock freed a key before its holder was told")
}

// undisturbed checks that clients that could always reach the server have lost
// nothing.
func (s *stepped) undisturbed() error {
	for _, g := range s.near {
		if n := g.Stats().Losses; n > 0 {
			return violation("a session that was not silent was lost %d times", n)
		}
	}
	return nil
}

// contest cuts far off while it holds a lock, and steps the clock by d. It
// waits until a near client has the lock and has written, and far was told of
// its loss. reason is the fence's for refusing far's write.
func (s *stepped) contest(ctx context.Context, d time.Duration) (reason, err error) {
	limited, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	lock, err := s.far.Lock(limited, contestedKey)
	if err != nil {
		return nil, err
	}
	first := s.recordFar(lock)
	if err := s.data.writeLogged(ctx, first); err != nil { // it has its token now
		return nil, errors.Join(err, lock.Unlock())
	}
	if err := s.age(ctx); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	down, err := s.link.Hold()
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	defer func() { err = errors.Join(err, down.Mend()) }()
	knows := make(chan struct{})
	s.after.Go(func() {
		first.hold(limited)
		close(knows)
		first.end(ctx)
	})
	defer func() { cancel(); <-knows }()
	if err := s.step(ctx, d); err != nil {
		return nil, err
	}
	return s.succeed(limited, first)
}

// recordFar begins to observe a lock of far. At random, far relies on the
// context alone.
func (s *stepped) recordFar(lock *sqllock.Lock) *loggedLock {
	if s.f.Rand.IntN(3) == 0 {
		return s.log.recordListening(farProcess, lock)
	}
	return s.log.record(farProcess, lock)
}

// age has far call the server twice, with a pause between. The server sets its
// alarm for a silent session at the first call. When the alarm rings it looks
// at the clock and puts the alarm off. So a step after that has its whole
// effect.
func (s *stepped) age(ctx context.Context) error {
	other := sqllock.Namespace("clock").Key("other")
	if err := free(ctx, s.far, other, recoverWithin); err != nil {
		return err
	}
	if err := worker.Pause(ctx, s.f.between(0.1, 0.5, s.f.Lease)); err != nil {
		return err
	}
	return free(ctx, s.far, other, recoverWithin)
}

// succeed has a near client take the contested key and write. It checks that
// the holder before it cannot write any more, and returns the reason. It goes
// on until that holder was told.
func (s *stepped) succeed(ctx context.Context, before *loggedLock) (reason, err error) {
	for {
		i := s.f.Rand.IntN(len(s.near))
		lock, err := seize(ctx, s.near[i], contestedKey)
		if err != nil {
			return nil, err
		}
		k := s.log.record(farProcess+1+i, lock)
		reason, err := s.outlive(ctx, k, before)
		k.giveBack()
		if reason != nil || err != nil {
			return reason, err
		}
	}
}

// seize takes key at the moment at which it becomes free. A caller that waits
// in Lock may ask a while later.
func seize(ctx context.Context, g *client, key sqllock.Key) (*sqllock.Lock, error) {
	for {
		lock, err := g.TryLock(ctx, key)
		if err == nil || !errors.Is(err, sqllock.ErrHeld) && !errors.Is(err, sqllock.ErrUnavailable) {
			return lock, err
		}
		if worker.Pause(ctx, time.Millisecond) != nil {
			return nil, violation("a key does not become free: %w", err)
		}
	}
}

// outlive writes for k, the next holder, until the one before it was told of
// its loss. reason says why the earlier holder's write was refused. It is nil
// if the step of the clock cost k its session as well.
func (s *stepped) outlive(ctx context.Context, k, before *loggedLock) (reason, err error) {
	if !k.Look() {
		return nil, nil
	}
	err = s.data.writeLogged(ctx, k)
	if errors.As(err, new(refusal)) {
		return nil, nil
	}
	reason = s.data.writeLogged(ctx, before)
	if err = errors.Join(err, mustRefuse(reason)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before.OnEnd(func(error) { cancel() })
	k.hold(ctx)
	return reason, nil
}
