package faults

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// sqliteRows are the rows with SQLite. There is no network and no server. A
// process that is frozen in the middle of a transaction keeps the file locked,
// so that others may lose their locks too.
var sqliteRows = slices.Concat(
	same(3, 23, 27, 30),
	with(VictimAtLeast, 2),
	[]Row{
		killLeased,
		{Number: 35, Name: "a writer locks the file for a moment", Quick: true, Effect: NothingLost, inject: lockFile(0.1, 0.6)},
		{Number: 36, Name: "a writer locks the file longer than the lease", Effect: AllLose, inject: lockFile(1.1, 1.6)},
	},
)

// lockFile has another program keep the file of the locks locked for writing. A
// short time is a part of longestPause, a long one of the lease.
func lockFile(from, to float64) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
		db, err := f.LockWriter()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		whole := f.Lease
		if to < 1 {
			whole = f.longestPause()
		}
		d := f.between(from, to, whole)
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := db.Conn(limited)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		err = fleet.Poll(ctx, 10*time.Second, "the file to be free for a writer", func(context.Context) (bool, error) {
			_, err := conn.ExecContext(limited, "BEGIN IMMEDIATE")
			return err == nil, nil
		})
		if err != nil {
			return nil, err
		}
		f.begin()
		err = worker.Pause(ctx, d)
		_, rolledBack := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return nil, errors.Join(err, rolledBack)
	}
}
