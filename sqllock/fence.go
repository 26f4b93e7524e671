package sqllock

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// A fence in the database of the data: it compares the token of the lock with
// that of the last holder who wrote there.

// Fence rejects tx if lock is stale where tx writes. A lock alone cannot
// promise this across a freeze, a suspended machine or a failover: with Fence
// the database decides, where the data is. Call Fence first in the transaction,
// before its first read, and then do the work of the lock in it.
//
// The errors are these:
//   - ErrFenced: a transaction of a later holder has been fenced before, or the
//     server of tx is not the one that granted the lock, or it has restarted
//     since. Only the locks of a lease table outlive a restart.
//   - ErrLost or ErrReleased: the lock is known to be gone.
//   - ErrUnavailable: the database does not respond in time, or accepts no
//     connection.
//   - ctx's error, and ErrLost with it if the loss of a lock has ended ctx.
//   - An error of the server, which has an SQLState method. A serialization
//     failure (40001, 40P01) is one of the transaction: try it again with the
//     same lock.
//   - As of [Lock.Token], if the lock has no token.
//
// After any error the transaction is rolled back. A later statement on it fails
// with sql.ErrTxDone, and its Commit writes nothing, even if the caller ignores
// the error. Statements on the *sql.Conn that tx was begun on are not part of
// tx.
//
// The caller must report the error to its own caller, and that of Commit too.
// An HTTP handler that just returns sends 200 OK for work that was rolled back.
//
// Four rules hold for the transaction:
//   - Close its rows before. While some are open Fence fails, and its rollback
//     waits until they have been read, or, if scanned into sql.RawBytes,
//     closed.
//   - Call Fence outside any savepoint: a rollback to an older one undoes the
//     fence.
//   - To fence it for several keys, use one order everywhere, or two
//     transactions may deadlock (40P01).
//   - On MySQL and MariaDB return on its first error, and use no DDL in it. A
//     deadlock (1213) and DDL end the transaction there. Later statements on
//     the same tx are then committed at once, unfenced.
//
// The lock must be a Session's. Its first Fence draws a token:
//   - With PostgreSQL's advisory locks on the lock's own session, for a round
//     trip and a flush of the write-ahead log. The token is the log's position
//     there.
//   - On MySQL and MariaDB from a counter in a table, for a few round trips and
//     a commit. This needs a spare connection of the Session's pool.
//   - A lease table of PostgreSQL or SQLite brings tokens along with locks, and
//     draws one on a spare connection of the pool where it has none. In
//     PostgreSQL it draws another one after a restart of the server.
//
// After that Fence is one statement, and two on MySQL and MariaDB. Fenced
// transactions of one key run one after the other, since each locks the key's
// row in the table latchkey_fence until it ends. On SQLite each locks the whole
// file, also for the locks that are in it: see [SQLite].
//
// The transaction may be of another session, role, driver or database than the
// lock, or behind a transaction pooler. It must be on the server that granted
// the lock.
//
// Idea and term: M. Kleppmann, "How to do distributed locking" (2016).
func Fence(ctx context.Context, tx Tx, lock *Lock) error {
	err := inContext(ctx, fence(ctx, tx, lock))
	if err != nil {
		// With rows still open, or by a rollback to a savepoint, the transaction
		// would live on.
		_ = tx.Rollback()
	}
	return err
}

// fence is Fence without the rollback. Where it does not reach the database, it
// makes the transaction fail by other means (usertx.Spoil).
func fence(ctx context.Context, tx Tx, lock *Lock) error {
	token, err := lock.token(ctx)
	if err != nil {
		usertx.Spoil(ctx, tx)
		return err
	}
	passage, err := usertx.Fence(ctx, tx, lock.key.db(), *token)
	if passage == usertx.Elsewhere && token.Outlives {
		if token, err = lock.draw(ctx, token); err != nil {
			usertx.Spoil(ctx, tx)
			return err
		}
		passage, err = usertx.Fence(ctx, tx, lock.key.db(), *token)
	}
	switch {
	case err != nil:
		return fenceError(err)
	case passage == usertx.Elsewhere:
		usertx.Spoil(ctx, tx)
		return ErrFenced
	case passage == usertx.Stopped:
		return ErrFenced
	}
	return nil
}

// fenceError returns err with what to change, if a right or a table is missing.
func fenceError(err error) error {
	switch errcode.SQLState(err) { // a right that is not there; a table, in PostgreSQL and in MySQL
	case "42501":
		return fmt.Errorf("sqllock: the role of the transaction needs INSERT, SELECT and UPDATE on the table latchkey_fence,"+
			" and EXECUTE on pg_postmaster_start_time: %w", err)
	case "42S02":
		return fmt.Errorf("sqllock: there is no table latchkey_fence in the database: create it with FenceSchema(MySQL): %w", err)
	case "42P01":
		return fmt.Errorf("sqllock: there is no table latchkey_fence in the search_path: create it with FenceSchema(PostgreSQL): %w", err)
	}
	return txError(true, err)
}
