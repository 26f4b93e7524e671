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

// farStep is how far a clock steps that somebody has set right.
const farStep = 10 * time.Second

// clockSteps steps the clock of a server of its own: first as far as the promise
// of locks reaches, then beyond, where that of the fence still does.
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
		return nil, violation("steps that are promised to do no harm: %w", err)
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

// believed is what must hold whatever the clocks do.
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

// within steps back as far as you like, and forward by σ, a tenth of the lease,
// at the worst moment: when somebody was just cut off, whose lock the server
// will free early by as much.
func (s *stepped) within(ctx context.Context) error {
	if err := s.step(ctx, -s.f.between(0, 1, farStep)); err != nil {
		return err
	}
	if _, err := s.contest(ctx, s.f.between(0.5, 1, s.f.Lease/10)); err != nil {
		return err
	}
	return s.step(ctx, -s.f.between(0, 1, farStep))
}

// beyond steps forward by more than any lease, and back, until somebody was fenced
// off who still believed: else nothing was beyond.
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
	return errors.New("no step of the clock freed a key whose holder still believed")
}

// undisturbed checks that who can always speak with the server has lost nothing.
func (s *stepped) undisturbed() error {
	for _, g := range s.near {
		if n := g.Stats().Losses; n > 0 {
			return violation("a session that was not silent was lost %d times", n)
		}
	}
	return nil
}

// dispute has far cut off with a lock, steps the clock by d, and waits until a
// near one has the lock and has written, and far knows of its loss. The reason
// is the fence's for refusing far's write.
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

// recordFar begins to note what far sees of a lock. It listens now and then.
func (s *stepped) recordFar(lock *sqllock.Lock) *loggedLock {
	if s.f.Rand.IntN(3) == 0 {
		return s.log.recordListening(farProcess, lock)
	}
	return s.log.record(farProcess, lock)
}

// age has far speak with the server twice, with a while between. The server's
// alarm for a silent session is that of the first time, and put off when it
// rings: then it looks at the clock, and a step has its whole effect.
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

// succeed has a near client take the contestedKey key and write, and checks that the
// one before it cannot write any more, for what reason. It goes on until that one
// knows.
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

// seize takes key in the moment in which it becomes free: who waits in Lock may
// ask a while later.
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

// outlive is what the next holder does until the one before it knows of its
// loss. The reason is that for refusing the write of the one before, none if the
// step of the clock has cost this one its session as well.
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
