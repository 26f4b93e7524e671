package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// ErrTimeout is matched by Poll's error if what it waited for did not come.
var ErrTimeout = errors.New("waited without success")

// What a fleet itself shows to be wrong.
var (
	ErrLeftBehind   = check.NewRule("a lock was left behind by callers that had ended")
	ErrProcessEnded = check.NewTimedRule("a process has ended by itself")
	ErrDrain        = check.NewTimedRule("a process did not end as it should")
)

// Poll calls done every few milliseconds until it reports true or an error, for
// at most d. Then it goes on for a moment: this process may have stood still, and
// hears what others have told only after that. what names the thing waited for.
func Poll(ctx context.Context, d time.Duration, what string, done func(context.Context) (bool, error)) error {
	const moment = 200 * time.Millisecond
	err := poll(ctx, d, done)
	if errors.Is(err, ErrTimeout) {
		err = poll(ctx, moment, done)
	}
	switch {
	case errors.Is(err, ErrTimeout):
		return fmt.Errorf("fleet: %v, for %s: %w", d, what, err)
	case err != nil && ctx.Err() == nil:
		return fmt.Errorf("fleet: %s: %w", what, err)
	}
	return err
}

// poll is Poll without the moment after d, and with errors that do not say what
// was waited for.
func poll(ctx context.Context, d time.Duration, done func(context.Context) (bool, error)) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	end, _ := limited.Deadline()
	for {
		ok, err := done(limited)
		switch {
		case err != nil && limited.Err() == nil && !late(err, end):
			return err
		case ok && err == nil:
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limited.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return errors.Join(ErrTimeout, err)
		}
	}
}

// late reports whether err is of a call that met the deadline end. A dial may see
// the deadline of its context before the context ends, and tells it in either way.
func late(err error, end time.Time) bool {
	const before = 50 * time.Millisecond
	return time.Until(end) < before && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded))
}

// Serving waits until each process of the fleet serves.
func (f *Fleet) Serving(ctx context.Context, d time.Duration) error {
	var all []*worker.Process
	for _, m := range f.Members {
		all = append(all, m.Process)
	}
	return Serving(ctx, d, all)
}

// Serving waits until each process has granted a lock that was requested after
// the call of Serving.
func Serving(ctx context.Context, d time.Duration, processes []*worker.Process) error {
	since := history.Now()
	var idle []string
	err := Poll(ctx, d, "every process to serve", func(context.Context) (bool, error) {
		idle = idle[:0]
		for _, p := range processes {
			select {
			case <-p.Ended():
				return false, fmt.Errorf("%w: process %d", ErrProcessEnded, p.Config.Process)
			default:
			}
			if s := p.Status(); s.LastOK <= since {
				idle = append(idle, fmt.Sprintf("process %d, last status %v ago: %+v",
					p.Config.Process, time.Duration(history.Now()-s.At).Round(time.Millisecond), s))
			}
		}
		return len(idle) == 0, nil
	})
	if err != nil && len(idle) > 0 {
		return fmt.Errorf("%w:\n%s", err, strings.Join(idle, "\n"))
	}
	return err
}

// Status waits for a status that m's process reports from now on.
func (f *Fleet) Status(ctx context.Context, m *Member) (s worker.Status, err error) {
	since := history.Now()
	err = Poll(ctx, 10*time.Second, "a process to tell its status", func(context.Context) (bool, error) {
		s = m.Process.Status()
		return s.At > since, nil
	})
	return s, err
}

// number returns the response to a query for a number. The server may just be
// starting, and the machine may be busy.
func (f *Fleet) number(ctx context.Context, query string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = f.LockDB.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// SessionPID is the number by which the store knows m's Session; it waits until
// there is one. It is that of the server's process or connection. A lease table
// knows the process itself.
func (f *Fleet) SessionPID(ctx context.Context, m *Member) (pid int, err error) {
	if f.backend.session == "" {
		return m.Process.PID(), nil
	}
	return f.Find(ctx, fmt.Sprintf(f.backend.session, m.Role))
}

// Find waits until a query of the locks' database has an answer that is not 0.
func (f *Fleet) Find(ctx context.Context, query string) (n int, err error) {
	err = Poll(ctx, 30*time.Second, "a connection", func(ctx context.Context) (bool, error) {
		n, err = f.number(ctx, query)
		return err == nil && n != 0, nil
	})
	return n, err
}

// Released waits until a Session that may have ended holds no lock. pid is its
// SessionPID.
func (f *Fleet) Released(ctx context.Context, pid int, d time.Duration) error {
	return f.none(ctx, d, "the locks of a process that has ended to go", fmt.Sprintf(f.backend.locksOf, pid))
}

func (f *Fleet) none(ctx context.Context, d time.Duration, what, query string) error {
	return Poll(ctx, d, what, func(ctx context.Context) (bool, error) {
		n, err := f.number(ctx, query)
		return n == 0, err
	})
}

// locks lists the keys of all locks in force.
func (f *Fleet) locks(ctx context.Context) (keys []int64, err error) {
	rows, err := f.LockDB.QueryContext(ctx, f.backend.locks)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key int64
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

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
	until := func(d time.Duration, what string, done func(worker.Status) bool) error {
		for _, m := range f.Members {
			err := Poll(ctx, d, what, func(context.Context) (bool, error) { return done(m.Process.Status()), nil })
			if err != nil {
				return fmt.Errorf("process %d: %w", m.Process.Config.Process, err)
			}
		}
		return nil
	}
	for _, m := range f.Members {
		if err := m.Process.Rest(); err != nil {
			return fmt.Errorf("fleet: process %d: %w", m.Process.Config.Process, err)
		}
	}
	if err := until(30*time.Second, "the callers of a process to end", func(s worker.Status) bool { return s.Rested }); err != nil {
		return err
	}
	if err := until(d, "a session to hold nothing", func(s worker.Status) bool { return s.Holding == 0 }); err != nil {
		return leftBehind(err)
	}
	err := Poll(ctx, d, "the server to hold no lock", func(ctx context.Context) (bool, error) {
		keys, err := f.locks(ctx)
		return len(keys) == 0, err
	})
	if err != nil {
		return leftBehind(err)
	}
	for _, m := range f.Members {
		if err := m.Process.Probe(); err != nil {
			return fmt.Errorf("fleet: process %d: %w", m.Process.Config.Process, err)
		}
		if err := Poll(ctx, 2*time.Minute, "a process to take each key", func(context.Context) (bool, error) { return m.Process.Status().Probed, nil }); err != nil {
			return fmt.Errorf("process %d: %w", m.Process.Config.Process, err)
		}
		if stuck := m.Process.Status().Stuck; len(stuck) > 0 {
			return fmt.Errorf("%w: process %d cannot take %d keys, first %d", ErrLeftBehind, m.Process.Config.Process, len(stuck), stuck[0])
		}
	}
	return nil
}

// leftBehind returns err as a violation if it is Poll's, after its time.
func leftBehind(err error) error {
	if !errors.Is(err, ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLeftBehind, err)
}

// Drain has every process end its work, and checks that nothing is left: no
// goroutine in a process, no connection, no lock in the server.
func (f *Fleet) Drain(ctx context.Context) error {
	var err error
	for _, m := range f.Members {
		err = errors.Join(err, Drain(ctx, m.Process))
	}
	if err != nil {
		return err
	}
	return leftBehind(f.none(ctx, f.Lease+5*time.Second, "the last connection to go", f.backend.remains))
}

// Restart has m's process end its work, and starts another. In a fleet of two
// versions it is of the other one, as in a deployment, while one that was killed
// comes back as it was.
func (f *Fleet) Restart(ctx context.Context, m *Member) error {
	if err := Drain(ctx, m.Process); err != nil {
		return err
	}
	m.Old = f.Old != "" && !m.Old
	return f.Replace(m)
}

// Drain has a process end its work, and checks that no goroutine is left in it.
func Drain(ctx context.Context, p *worker.Process) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	report, err := p.Drain(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDrain, err)
	}
	if report.Goroutines > 0 {
		return fmt.Errorf("%w: process %d leaves %d goroutines:\n%s", ErrDrain, p.Config.Process, report.Goroutines, report.Stacks)
	}
	return nil
}
