package faults

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// killLeased is row 1 where keys are not free at once. A lease table does not know
// that a process is dead.
var killLeased = Row{Number: 1, Name: "kill -9", Effect: Any, inject: killAndWait}

// outlived are the rows that cost a lease table nothing, although they cost
// advisory locks: a connection ends, and the session goes on with another one.
var outlived = []Row{
	killLeased,
	{Number: 8, Name: "connections reset", Quick: true, Effect: NothingLost, inject: disturb((*proxy.Proxy).Sever)},
	{Number: 11, Name: "reply to an acquire lost", Quick: true, Effect: NothingLost, inject: loseReply(proxy.Acquire)},
	{Number: 12, Name: "reply to a release lost", Quick: true, Effect: NothingLost, inject: loseReply(proxy.Release)},
	{Number: 13, Name: "pg_terminate_backend, all at once", Quick: true, Effect: NothingLost, inject: terminateAll},
}

// leaseRows are the rows with a lease table in PostgreSQL. In rows 7 and 25 each
// connection of the pool may have to fail first, and rows 20 and 25 last longer
// than a lease. The server needs some time to recover in rows 14 and 15, and a
// session whose row is locked by a frozen backend cannot renew its lease. So locks
// may be lost there.
var leaseRows = slices.Concat(
	same(2, 3, 4, 5, 6, 9, 10, 23, 27, 30),
	with(Any, 14, 15, 16, 31),
	with(VictimAtMost, 25),
	outlived,
	[]Row{
		{Number: 7, Name: "half-open connections", Effect: VictimAtMost, inject: disturb((*proxy.Proxy).HalfOpen)},
		{Number: 20, Name: "a standby answers", Effect: VictimAtMost, inject: standbyForAWhile},
	},
	with(AllLose, 32),
)

// pooledRows are those behind PgBouncer in transaction mode. Its connections to
// the server serve all processes.
var pooledRows = slices.Concat(
	same(2, 3, 4, 5, 6, 9, 10, 23, 27, 30),
	with(Any, 14, 15, 16, 31),
	outlived,
	[]Row{
		{Number: 7, Name: "half-open connections", Effect: VictimAtMost, inject: disturb((*proxy.Proxy).HalfOpen)},
		{Number: 34, Name: "the pooler killed, and another one started", Quick: true, Effect: NothingLost, inject: replacePooler},
	},
	with(AllLose, 32),
)

// killAndWait kills a process and waits until its lease has passed, and its keys
// were asked for. The next fault must not hide that.
func killAndWait(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return nil, err // m lives
	}
	pid, err := f.SessionPID(ctx, m)
	if err != nil {
		return nil, err
	}
	f.begin()
	if err := f.Kill(m); err != nil {
		return m, err
	}
	if err := f.Released(ctx, pid, f.Lease+atOnce); err != nil {
		return m, asViolation(err)
	}
	return m, worker.Pause(ctx, atOnce)
}

// disturb makes a fault of the network that is mended after a moment.
func disturb(fault func(*proxy.Proxy) (*proxy.Fault, error)) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		m, err := f.holding(ctx)
		if err != nil {
			return m, err
		}
		f.begin()
		made, err := fault(m.Proxy)
		return m, f.mendAfter(ctx, f.between(0.05, 0.3, f.Lease), made, err)
	}
}

// terminateAll ends the connections of a process, or all those of the pooler.
func terminateAll(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	if f.Store == fleet.PooledLeases {
		return nil, f.ExecAfter(ctx, f.begin, end)
	}
	return m, f.ExecAfter(ctx, f.begin, end+" AND usename = $1", m.Role)
}

// standbyForAWhile leads a process to a standby, which cannot renew a lease.
func standbyForAWhile(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	s, err := f.Standby()
	if err != nil {
		return m, err
	}
	_, host, err := f.StandbyDSN(s)
	if err != nil {
		return m, err
	}
	f.begin()
	if err := m.Proxy.Switch(host); err != nil {
		return m, err
	}
	err = f.notServed(ctx, m, "calls to fail without a primary", func() int64 {
		s := m.Process.Status()
		return s.NotExclusive + s.Unavailable
	})
	return m, errors.Join(err, m.Proxy.Switch(f.Server()))
}

// replacePooler kills PgBouncer, and leads all processes to another one.
func replacePooler(ctx context.Context, f *Injector) (*fleet.Member, error) {
	if err := f.Pooler.Kill(); err != nil {
		return nil, err
	}
	if err := worker.Pause(ctx, f.between(0, 1, 100*time.Millisecond)); err != nil {
		return nil, err
	}
	if err := f.ReplacePooler(); err != nil {
		return nil, err
	}
	for _, m := range f.Members {
		if err := m.Proxy.Switch(f.Server()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
