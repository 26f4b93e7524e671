package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// ErrTimeout is matched by Poll's error if what it waited for did not come.
var ErrTimeout = errors.New("waited without success")

// Poll calls done every few milliseconds until it reports true or an error, for
// at most d. what names the thing waited for.
func Poll(ctx context.Context, d time.Duration, what string, done func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	end, _ := limited.Deadline()
	for {
		ok, err := done(limited)
		switch {
		case err != nil && limited.Err() == nil && !late(err, end):
			return fmt.Errorf("fleet: %s: %w", what, err)
		case ok && err == nil:
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limited.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return errors.Join(fmt.Errorf("fleet: %w, %v, for %s", ErrTimeout, d, what), err)
		}
	}
}

// late reports whether err is of a call that met the deadline end. A dial may see
// the deadline of its context before the context ends, and tells it in either way.
func late(err error, end time.Time) bool {
	const before = 50 * time.Millisecond
	return time.Until(end) < before && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded))
}

// ErrProcessEnded is matched by Serving's error if a process under test has
// crashed or exited, although the campaign did not end it.
var ErrProcessEnded = errors.New("a process has ended by itself")

// Serving waits until each process has granted a lock that was requested after
// the call of Serving.
func (f *Fleet) Serving(ctx context.Context, d time.Duration) error {
	since := history.Now()
	var idle []string
	err := Poll(ctx, d, "every process to serve", func(context.Context) (bool, error) {
		idle = idle[:0]
		for _, m := range f.Members {
			select {
			case <-m.Process.Ended():
				return false, fmt.Errorf("%w: process %d", ErrProcessEnded, m.Process.Config.Process)
			default:
			}
			if s := m.Process.Status(); s.LastOK <= since {
				idle = append(idle, fmt.Sprintf("process %d (%s, last status %v ago): %+v",
					m.Process.Config.Process, m.Driver, time.Duration(history.Now()-s.At).Round(time.Millisecond), s))
			}
		}
		return len(idle) == 0, nil
	})
	if err != nil && len(idle) > 0 {
		return fmt.Errorf("%w:\n%s", err, strings.Join(idle, "\n"))
	}
	return err
}

// A Tally is what a process has lost so far.
type Tally struct {
	Process     int
	Connections uint64
	Locks       int64
}

// Status waits for a status that m's process reports after since.
func (f *Fleet) Status(ctx context.Context, m *Member, since history.Moment) (s worker.Status, err error) {
	err = Poll(ctx, 10*time.Second, "a process to tell its status", func(context.Context) (bool, error) {
		s = m.Process.Status()
		return s.At > since, nil
	})
	return s, err
}

// Tally returns the losses in a status of m that is newer than since.
func (f *Fleet) Tally(ctx context.Context, m *Member, since history.Moment) (Tally, error) {
	s, err := f.Status(ctx, m, since)
	return tally(m.Process, s), err
}

// TallyOf is what p, which may have ended, told last.
func TallyOf(p *worker.Process) Tally { return tally(p, p.Status()) }

func tally(p *worker.Process, s worker.Status) Tally {
	return Tally{p.Config.Process, s.Connections, s.Lost}
}

// Tallies is the Tally of each member, of this moment.
func (f *Fleet) Tallies(ctx context.Context) ([]Tally, error) {
	since := history.Now()
	all := make([]Tally, len(f.Members))
	for i, m := range f.Members {
		var err error
		if all[i], err = f.Tally(ctx, m, since); err != nil {
			return nil, err
		}
	}
	return all, nil
}
