package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrLeftBehind is matched by Rest's error if a lock or a place was left.
var ErrLeftBehind = errors.New("fleet: a lock was left behind by callers that had ended")

// Rest has every process end its callers and keep its session. It checks that
// no lock is left then, by what each session says and by the database. Then each
// process takes every key and every place of a limit once, one process after
// the other. Drain must follow.
//
// d bounds how long what calls that gave up have left may take to go.
//
// What a session has kept by mistake shows here. Later its connection ends, and
// all its locks with it.
func (f *Fleet) Rest(ctx context.Context, d time.Duration) error {
	for _, m := range f.Members {
		if err := m.Process.Rest(); err != nil {
			return fmt.Errorf("fleet: process %d: %w", m.Process.Config.Process, err)
		}
	}
	if err := f.rested(ctx); err != nil {
		return err
	}
	for _, m := range f.Members {
		err := Poll(ctx, d, "a session to hold nothing", func(context.Context) (bool, error) { return m.Process.Status().Holding == 0, nil })
		if err != nil {
			return leftBehind(err, "process %d says that it holds %d locks", m.Process.Config.Process, m.Process.Status().Holding)
		}
	}
	var n int
	err := Poll(ctx, d, "the server to hold no lock", func(ctx context.Context) (bool, error) {
		now, _, err := f.backend.locks(ctx)
		if err == nil {
			n = now
		}
		return now == 0, err
	})
	if err != nil {
		return leftBehind(err, "%d locks are there", n)
	}
	return f.probe(ctx)
}

// rested waits until all callers have ended.
func (f *Fleet) rested(ctx context.Context) error {
	for _, m := range f.Members {
		err := Poll(ctx, 30*time.Second, "the callers of a process to end", func(context.Context) (bool, error) { return m.Process.Status().Rested, nil })
		if err != nil {
			return fmt.Errorf("process %d: %w", m.Process.Config.Process, err)
		}
	}
	return nil
}

// probe has one process after the other take each key.
func (f *Fleet) probe(ctx context.Context) error {
	for _, m := range f.Members {
		if err := m.Process.Probe(); err != nil {
			return fmt.Errorf("fleet: process %d: %w", m.Process.Config.Process, err)
		}
		err := Poll(ctx, 2*time.Minute, "a process to take each key", func(context.Context) (bool, error) { return m.Process.Status().Probed, nil })
		if err != nil {
			return fmt.Errorf("process %d: %w", m.Process.Config.Process, err)
		}
		if stuck := m.Process.Status().Stuck; len(stuck) > 0 {
			return fmt.Errorf("%w: process %d cannot take %d keys, first %d", ErrLeftBehind, m.Process.Config.Process, len(stuck), stuck[0])
		}
	}
	return nil
}

// leftBehind returns err as a violation if it is Poll's, after its time.
func leftBehind(err error, format string, args ...any) error {
	if !errors.Is(err, ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrLeftBehind, fmt.Sprintf(format, args...), err)
}
