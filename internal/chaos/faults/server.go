package faults

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/tidbtest"
)

// A server is one that holds the locks.
type server interface {
	Kill() error
	Stop() error
	StartAgain() error
	Freeze() error
	Thaw() error
}

func (f *Injector) server() server {
	switch {
	case f.MariaDB != nil:
		return f.MariaDB
	case f.TiDB != nil:
		return f.TiDB
	}
	return f.Cluster
}

func restart(end func(server) error) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(_ context.Context, f *Injector) (*fleet.Member, error) {
		return nil, errors.Join(end(f.server()), f.server().StartAgain())
	}
}

// restartOne ends one of the TiDB servers, and starts it again when length has
// passed. Half of the members have their connections there.
func restartOne(length func(*Injector) time.Duration) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		n := f.Rand.IntN(tidbtest.Servers)
		return nil, f.during(ctx, length(f), func() error { return f.TiDB.StopOne(n) }, func() error { return f.TiDB.StartOne(n) })
	}
}

func freezeServer(ctx context.Context, f *Injector) (*fleet.Member, error) {
	return nil, f.during(ctx, f.long(), f.server().Freeze, f.server().Thaw)
}

// order gives the server an order. The fault begins when only the order is left to
// send.
func (f *Injector) order(ctx context.Context, order string) error {
	conn, err := f.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	f.begin()
	_, err = conn.ExecContext(ctx, order)
	return err
}

// endSession ends m's session, or all of its connections where that has none of
// its own.
func (f *Injector) endSession(ctx context.Context, m *fleet.Member) error {
	const end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
	switch f.Store {
	case fleet.PooledLeases:
		return f.order(ctx, end)
	case fleet.Leases:
		return f.order(ctx, end+" AND usename = '"+m.Role+"'")
	case fleet.MariaDBLeases:
		return f.order(ctx, "KILL USER "+m.Role)
	}
	pid, err := f.SessionPID(ctx, m)
	if err != nil {
		return err
	}
	if f.Store == fleet.MariaDB {
		return f.order(ctx, fmt.Sprintf("KILL %d", pid))
	}
	return f.order(ctx, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
}

func terminate(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err == nil {
		err = f.endSession(ctx, m)
	}
	if f.Store == fleet.PooledLeases {
		return nil, err
	}
	return m, err
}

// freezeBackend freezes one of the server's processes that serve a holder.
func freezeBackend(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	pid := 0
	const find = "SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
	switch f.Store {
	case fleet.PooledLeases:
		pid, err = f.Find(ctx, find)
	case fleet.Leases:
		pid, err = f.Find(ctx, find+" AND application_name = '"+m.Role+"'")
	default:
		pid, err = f.SessionPID(ctx, m)
	}
	if err != nil {
		return m, err
	}
	f.begin()
	return m, f.during(ctx, f.long(), func() error { return f.Cluster.FreezeBackend(pid) }, func() error { return f.Cluster.ThawBackend(pid) })
}

// lockOut ends the connections of a process and prevents new ones: its role may
// not log in, or has no connection left.
func lockOut(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	refuse, admit := "ALTER ROLE "+m.Role+" NOLOGIN", "ALTER ROLE "+m.Role+" LOGIN"
	rest := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + m.Role + "'"
	if f.Rand.IntN(2) == 0 {
		refuse, admit = "ALTER ROLE "+m.Role+" CONNECTION LIMIT 0", "ALTER ROLE "+m.Role+" CONNECTION LIMIT -1"
	}
	if f.MariaDB != nil {
		refuse, admit = "ALTER USER "+m.Role+" ACCOUNT LOCK", "ALTER USER "+m.Role+" ACCOUNT UNLOCK"
		rest = "KILL USER " + m.Role
	}
	if _, err := f.SessionPID(ctx, m); err != nil { // it has one
		return m, err
	}
	if err := f.Exec(ctx, refuse); err != nil {
		return m, err
	}
	err := f.endSession(ctx, m)
	if err == nil {
		err = f.Exec(ctx, rest)
	}
	if err == nil {
		err = f.notServed(ctx, m)
	}
	return m, errors.Join(err, f.Exec(ctx, admit))
}

// readOnly makes the server a replica for a moment, as a planned switchover
// does. Sessions must end at their next exchange, and none may be opened.
func readOnly(ctx context.Context, f *Injector) (*fleet.Member, error) {
	if err := f.Exec(ctx, "SET GLOBAL read_only = 1"); err != nil {
		return nil, err
	}
	err := f.notServed(ctx, f.member())
	return nil, errors.Join(err, f.Exec(ctx, "SET GLOBAL read_only = 0"))
}

// standby leads a process to a standby, where no Session may be opened, and no
// lease be renewed.
func standby(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	s, err := f.Standby()
	if err != nil {
		return m, err
	}
	dsn, err := url.Parse(m.Process.Config.Direct)
	if err != nil {
		return m, err
	}
	host, err := url.Parse(s.DSN(""))
	if err != nil {
		return m, err
	}
	if dsn.Host = host.Host; !f.Store.Leased() {
		if err := f.refused(ctx, dsn.String()); err != nil {
			return m, err
		}
	}
	f.begin()
	m.Proxy.Switch(host.Host)
	err = f.notServed(ctx, m)
	m.Proxy.Switch(f.Server(m))
	return m, err
}

// notServed waits until m's calls fail without a refusal. Then it checks that
// none is granted for a while. Callers of one session hand locks to each other
// without the database, for as long as the lease is trusted.
func (f *Injector) notServed(ctx context.Context, m *fleet.Member) error {
	seen := m.Process.Status().Unserved
	err := fleet.Poll(ctx, 10*time.Second, "calls to find no server that may grant", func(context.Context) (bool, error) {
		return m.Process.Status().Unserved > seen, nil
	})
	if err != nil {
		return asViolation(err)
	}
	if err := worker.Pause(ctx, f.validFor()); err != nil {
		return err
	}
	before, err := f.Status(ctx, m)
	if err != nil {
		return err
	}
	if err := worker.Pause(ctx, f.Lease/4); err != nil {
		return err
	}
	after, err := f.Status(ctx, m)
	if err == nil && after.Granted != before.Granted {
		return violation("locks are granted without a database that could")
	}
	return err
}

// replacePooler kills PgBouncer, and leads all processes to another one.
func replacePooler(ctx context.Context, f *Injector) (*fleet.Member, error) {
	err := f.during(ctx, f.between(0, 1, 100*time.Millisecond), f.Pooler.Kill, f.StartPooler)
	for _, m := range f.Members {
		m.Proxy.Switch(f.Server(m))
	}
	return nil, err
}

// lockFile has another program keep the file of the locks locked for writing.
func lockFile(length func(*Injector) time.Duration) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := f.LockDB.Conn(limited)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		d := length(f)
		err = fleet.Poll(limited, 10*time.Second, "the file to be free for a writer", func(context.Context) (bool, error) {
			_, err := conn.ExecContext(limited, "BEGIN IMMEDIATE")
			return err == nil, nil
		})
		if err != nil {
			return nil, err
		}
		f.begin()
		return nil, f.during(ctx, d, func() error { return nil }, func() error {
			_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return err
		})
	}
}
