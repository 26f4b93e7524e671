package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// mariadbRows are the rows with MariaDB.
var mariadbRows = slices.Concat(
	same(2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 23, 27, 30),
	[]Row{
		killLeased, // it waits until the keys were asked for: a fault of the server that follows takes a while
		{Number: 13, Name: "KILL of the connection", Quick: true, Effect: VictimLoses, inject: killConnection},
		{Number: 15, Name: "the server killed with -9", Quick: true, Effect: AllLose, inject: crashMariaDB},
		{Number: 25, Name: "account locked", Quick: true, Effect: VictimLoses, inject: lockAccount},
		{Number: 31, Name: "orderly restart of the server", Quick: true, Effect: AllLose, inject: restartMariaDB},
		{Number: 32, Name: "the server frozen longer than the lease", Effect: AllLose, inject: freezeMariaDB},
		{Number: 33, Name: "read_only switched on and off", Quick: true, Effect: AllLose, inject: readOnly},
	},
)

func killConnection(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	id, err := f.SessionPID(ctx, m)
	if err != nil {
		return m, err
	}
	return m, f.kill(ctx, id)
}

// kill ends a connection. The fault begins when only the order is left to send.
func (f *Injector) kill(ctx context.Context, id int) error {
	conn, err := f.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	f.begin()
	_, err = conn.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
	return err
}

func crashMariaDB(_ context.Context, f *Injector) (*fleet.Member, error) {
	return nil, errors.Join(f.MariaDB.Kill(), f.MariaDB.StartAgain())
}

func restartMariaDB(_ context.Context, f *Injector) (*fleet.Member, error) {
	return nil, errors.Join(f.MariaDB.Stop(), f.MariaDB.StartAgain())
}

func freezeMariaDB(ctx context.Context, f *Injector) (*fleet.Member, error) {
	if err := f.MariaDB.Freeze(); err != nil {
		return nil, err
	}
	return nil, errors.Join(worker.Pause(ctx, f.between(1.05, 1.5, f.Lease)), f.MariaDB.Thaw())
}

// readOnly makes the server a replica for a moment, as a planned switchover
// does. Sessions must end at their next exchange, and none may be opened.
func readOnly(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	if err := f.Exec(ctx, "SET GLOBAL read_only = 1"); err != nil {
		return nil, err
	}
	err := f.notServed(ctx, m, "calls to fail on a server that is read-only", func() int64 {
		s := m.Process.Status()
		return s.NotExclusive + s.Unavailable
	})
	return nil, errors.Join(err, f.Exec(ctx, "SET GLOBAL read_only = 0"))
}

// lockAccount ends the connections of a process and prevents new ones.
func lockAccount(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	id, err := f.SessionPID(ctx, m)
	if err != nil {
		return m, err
	}
	if err := f.Exec(ctx, "ALTER USER "+m.Role+" ACCOUNT LOCK"); err != nil {
		return m, err
	}
	err = f.kill(ctx, id)
	if err == nil {
		err = f.Exec(ctx, "KILL USER "+m.Role)
	}
	if err == nil {
		err = f.notServed(ctx, m, "calls to fail with ErrUnavailable or ErrConfig", func() int64 { return m.Process.Status().Unavailable })
	}
	return m, errors.Join(err, f.Exec(ctx, "ALTER USER "+m.Role+" ACCOUNT UNLOCK"))
}
