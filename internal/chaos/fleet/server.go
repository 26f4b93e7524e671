package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// number returns the server's response to a query for a number. The server may
// just be starting, and the machine may be busy.
func (f *Fleet) number(ctx context.Context, query string, args ...any) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = f.DB.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, err
}

// SessionPID is the number by which the store knows m's Session; it waits until
// there is one. It is that of the server's process or connection. A lease table
// knows the process itself.
func (f *Fleet) SessionPID(ctx context.Context, m *Member) (pid int, err error) {
	if f.Store.Leased() {
		return m.Process.PID(), nil
	}
	query, name := "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", m.Role+" latchkey"
	if f.Store == MariaDB {
		query, name = `SELECT coalesce(max(p.id), 0) FROM information_schema.processlist p
			JOIN information_schema.metadata_lock_info l ON l.thread_id = p.id WHERE p.user = ? AND l.lock_type = 'User lock'`, m.Role
	}
	return f.poll(ctx, "the connection of a Session", query, name)
}

// BackendPID is the process id of one of the server processes that serve m. It
// is for stores in PostgreSQL.
func (f *Fleet) BackendPID(ctx context.Context, m *Member) (pid int, err error) {
	switch f.Store {
	case Leases:
		return f.poll(ctx, "a connection of a process",
			"SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", m.Role)
	case PooledLeases:
		return f.poll(ctx, "a connection of the pooler",
			"SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = $1", "client backend")
	}
	return f.SessionPID(ctx, m)
}

// poll waits until a query has an answer that is not 0.
func (f *Fleet) poll(ctx context.Context, what, query string, args ...any) (n int, err error) {
	err = Poll(ctx, 30*time.Second, what, func(ctx context.Context) (bool, error) {
		n, err = f.number(ctx, query, args...)
		return err == nil && n != 0, nil
	})
	return n, err
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

// NoStrangeLocks waits until no key is locked but those that callers want.
// Services lock keys that are not known, so with them only the keys of a flood
// count.
func (f *Fleet) NoStrangeLocks(ctx context.Context, d time.Duration) error {
	known := map[int64]bool{}
	for _, key := range worker.AllKeys(f.Keys) {
		known[key.Int64()] = true
	}
	flood := map[int64]bool{}
	for _, key := range worker.FloodKeys() {
		flood[key.Int64()] = true
	}
	strange := func(key int64) bool { return flood[key] || f.Services == 0 && !known[key] }
	return Poll(ctx, d, "locks that no caller holds to go", func(ctx context.Context) (bool, error) {
		_, keys, err := f.backend.locks(ctx)
		return !slices.ContainsFunc(keys, strange), err
	})
}

// Released waits until a Session that may have ended holds no lock. pid is its
// SessionPID.
func (f *Fleet) Released(ctx context.Context, pid int, d time.Duration) error {
	return Poll(ctx, d, "the locks of a process that has ended to go", func(ctx context.Context) (bool, error) {
		n, err := f.backend.locksOf(ctx, pid)
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
			n, _, err := f.backend.locks(ctx)
			return n == 0, err
		}),
		Poll(ctx, d, "the last connection to go", func(ctx context.Context) (bool, error) {
			n, err := f.backend.remains(ctx)
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
