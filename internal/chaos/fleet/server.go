package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// number is the answer of the server, which may just be starting, to a query
// for a number.
func (f *Fleet) number(ctx context.Context, query string, args ...any) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = f.DB.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

// SessionPID is the server's process of m's Session; it waits until there is
// one.
func (f *Fleet) SessionPID(ctx context.Context, m *Member) (pid int, err error) {
	err = Poll(ctx, 10*time.Second, "the connection of a Session", func(ctx context.Context) (bool, error) {
		pid, err = f.number(ctx, "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1",
			m.Role+" latchkey")
		return err == nil && pid != 0, nil
	})
	return pid, err
}

// Exec runs a statement as the observer.
func (f *Fleet) Exec(ctx context.Context, statement string, args ...any) error {
	if _, err := f.DB.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// ExecAfter is Exec that calls ready when only the order is left to send. By
// then there is a connection and a plan, which may take a while on a busy
// machine.
func (f *Fleet) ExecAfter(ctx context.Context, ready func(), statement string, args ...any) error {
	conn, err := f.DB.Conn(ctx)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer conn.Close()
	prepared, err := conn.PrepareContext(ctx, statement)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer prepared.Close()
	ready()
	if _, err := prepared.ExecContext(ctx, args...); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// advisoryLocks counts those of the fleet's database.
const advisoryLocks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// NoStrangeLocks waits until no key is locked but those that callers want. Pairs
// of numbers do not count: a session that waits has its marks there. Services
// lock keys that are not known, so with them only the keys of a flood count.
func (f *Fleet) NoStrangeLocks(ctx context.Context, d time.Duration) error {
	strange, known := "<> ALL", worker.AllKeys(f.Keys)
	if f.Services > 0 {
		strange, known = "= ANY", worker.FloodKeys()
	}
	var keys []int64
	for _, key := range known {
		keys = append(keys, key.Int64())
	}
	return Poll(ctx, d, "locks that no caller holds to go", func(ctx context.Context) (bool, error) {
		n, err := f.number(ctx, advisoryLocks+` AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint `+strange+` ($1)`, keys)
		return n == 0, err
	})
}

// Released waits until the server's process pid, which may have ended, holds no
// advisory lock.
func (f *Fleet) Released(ctx context.Context, pid int, d time.Duration) error {
	return Poll(ctx, d, "the locks of a process that has ended to go", func(ctx context.Context) (bool, error) {
		n, err := f.number(ctx, advisoryLocks+" AND pid = $1", pid)
		return n == 0, err
	})
}

// Drain has every process end its work, and checks that nothing is left: no
// goroutine in a process, no connection, no lock in the server.
func (f *Fleet) Drain(ctx context.Context) error {
	var err error
	for _, m := range f.Members {
		err = errors.Join(err, f.drain(ctx, m, m.Process.Drain))
	}
	if err != nil {
		return err
	}
	d := f.Lease + 5*time.Second
	return errors.Join(
		Poll(ctx, d, "the last lock to go", func(ctx context.Context) (bool, error) {
			n, err := f.number(ctx, advisoryLocks)
			return n == 0, err
		}),
		Poll(ctx, d, "the last connection to go", func(ctx context.Context) (bool, error) {
			n, err := f.number(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'member%'")
			return n == 0, err
		}))
}

// ErrDrain is matched by the error of a process that did not end as it should.
var ErrDrain = errors.New("fleet: a process did not end as it should")

// Restart has m's process end its work on SIGTERM, and starts another.
func (f *Fleet) Restart(ctx context.Context, m *Member) error {
	if err := f.drain(ctx, m, m.Process.Terminate); err != nil {
		return err
	}
	return f.Replace(m)
}

// drain ends m's process by the given means.
func (f *Fleet) drain(ctx context.Context, m *Member, end func(context.Context) (*worker.Report, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	report, err := end(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDrain, err)
	}
	if report.Goroutines > 0 {
		return fmt.Errorf("%w: process %d (%s) leaves %d goroutines:\n%s", ErrDrain, m.Process.Config.Process, m.Driver, report.Goroutines, report.Stacks)
	}
	return nil
}
