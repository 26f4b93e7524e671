package faults

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// serverRows are faults of the server.
var serverRows = []Row{
	{Number: 13, Name: "pg_terminate_backend", Quick: true, Effect: VictimLoses, inject: terminate},
	{Number: 14, Name: "a backend killed with -9", Quick: true, Effect: AllLose, inject: killBackend},
	{Number: 15, Name: "immediate restart", Quick: true, Effect: AllLose, inject: restart},
	// It may hold one of the server's own latches, for which all others wait.
	{Number: 16, Name: "backend frozen longer than the lease", Effect: VictimAtLeast, inject: freezeBackend},
	{Number: 17, Name: "the server's clock steps", Effect: NothingLost, Bystander: true, inject: clockSteps},
	{Number: 25, Name: "role may not connect", Quick: true, Effect: VictimLoses, inject: lockOut},
	{Number: 31, Name: "orderly restart of the server", Quick: true, Effect: AllLose, inject: restartOrderly},
	{Number: 32, Name: "the server frozen longer than the lease", Effect: AllLose, inject: freezeServer},
}

// backend returns a holder and the server process of its Session.
func (f *Injector) backend(ctx context.Context) (m *fleet.Member, pid int, err error) {
	if m, err = f.holding(ctx); err != nil {
		return m, 0, err
	}
	pid, err = f.BackendPID(ctx, m)
	f.begin()
	return m, pid, err
}

func terminate(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, pid, err := f.backend(ctx)
	if err != nil {
		return m, err
	}
	return m, f.endBackend(ctx, pid)
}

// endBackend ends a server process. The fault begins when only the order is
// left to send.
func (f *Injector) endBackend(ctx context.Context, pid int) error {
	return f.ExecAfter(ctx, f.begin, "SELECT pg_terminate_backend($1)", pid)
}

func killBackend(ctx context.Context, f *Injector) (*fleet.Member, error) {
	_, pid, err := f.backend(ctx)
	if err != nil {
		return nil, err
	}
	witness, err := f.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer witness.Close()
	if err := f.Cluster.KillBackend(pid); err != nil {
		return nil, err
	}
	// On a busy machine the server goes on for a moment before it ends the others.
	return nil, fleet.Poll(ctx, 10*time.Second, "the server to end its other connections", func(ctx context.Context) (bool, error) {
		return witness.PingContext(ctx) != nil, nil
	})
}

func restart(_ context.Context, f *Injector) (*fleet.Member, error) {
	return nil, f.Cluster.Restart(true)
}

func restartOrderly(_ context.Context, f *Injector) (*fleet.Member, error) {
	return nil, f.Cluster.Restart(false)
}

func freezeServer(ctx context.Context, f *Injector) (*fleet.Member, error) {
	if err := f.Cluster.Freeze(); err != nil {
		return nil, err
	}
	return nil, errors.Join(worker.Pause(ctx, f.between(1.05, 1.5, f.Lease)), f.Cluster.Thaw())
}

func freezeBackend(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, pid, err := f.backend(ctx)
	if err != nil {
		return m, err
	}
	if err := f.Cluster.FreezeBackend(pid); err != nil {
		return m, err
	}
	return m, errors.Join(worker.Pause(ctx, f.between(1.05, 1.5, f.Lease)), f.Cluster.ThawBackend(pid))
}

// lockOut ends the connections of a process and prevents new ones: its role may
// not log in, or has no connection left.
func lockOut(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	refuse, admit := "NOLOGIN", "LOGIN"
	if f.Rand.IntN(2) == 0 {
		refuse, admit = "CONNECTION LIMIT 0", "CONNECTION LIMIT -1"
	}
	pid, err := f.SessionPID(ctx, m)
	if err != nil {
		return m, err
	}
	if err := f.Exec(ctx, "ALTER ROLE "+m.Role+" "+refuse); err != nil {
		return m, err
	}
	err = f.endBackend(ctx, pid)
	if err == nil {
		err = f.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", m.Role)
	}
	if err == nil {
		err = f.notServed(ctx, m, "calls to fail with ErrUnavailable or ErrConfig", func() int64 { return m.Process.Status().Unavailable })
	}
	return m, errors.Join(err, f.Exec(ctx, "ALTER ROLE "+m.Role+" "+admit))
}

// notServed waits until m's calls fail in the way that failures counts. Then it
// checks that none is granted for a while. Callers of one session hand a leased
// lock to each other without the database, for as long as the lease is trusted.
func (f *Injector) notServed(ctx context.Context, m *fleet.Member, what string, failures func() int64) error {
	seen := failures()
	err := fleet.Poll(ctx, 10*time.Second, what, func(context.Context) (bool, error) {
		return failures() > seen, nil
	})
	if err != nil {
		return asViolation(err)
	}
	if f.Store.Leased() {
		if err := worker.Pause(ctx, f.validFor()); err != nil {
			return err
		}
	}
	before, err := f.Status(ctx, m, history.Now())
	if err != nil {
		return err
	}
	if err := worker.Pause(ctx, f.Lease/4); err != nil {
		return err
	}
	after, err := f.Status(ctx, m, history.Now())
	if err == nil && after.Granted != before.Granted {
		return violation("locks are granted without a database that could")
	}
	return err
}
