package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// ErrFenced is the error of [Fence] for a lock that is stale where the transaction
// writes. Either a transaction of a later holder has been fenced there, or the
// server there is not the one that granted the lock, or it has restarted since.
var ErrFenced = errors.New("sqllock: the fence rejected a stale lock: a later holder has been fenced," +
	" or the transaction's server is not the one that granted the lock, or has restarted since")

// Fence rejects tx if lock is stale where tx writes. A lock alone cannot promise
// this across a freeze, a suspended machine or a failover: with Fence the database
// decides, where the data is. Call Fence first in the transaction, before its first
// read, and then do the work of the lock in it.
//
// The errors are these:
//   - ErrFenced: a transaction of a later holder has been fenced before, or the
//     server of tx is not the one that granted the lock, or it has restarted since.
//     Only the locks of a lease table outlive a restart.
//   - ErrLost or ErrReleased: the lock is known to be gone.
//   - ErrUnavailable: the lock's session does not respond within a second.
//   - ctx's error, and ErrLost with it if the loss of a lock has ended ctx.
//   - An error of the server, which has an SQLState method. A serialization failure
//     (40001, 40P01) is one of the transaction: try it again with the same lock.
//
// After any error the transaction is rolled back. A later statement on it fails
// with sql.ErrTxDone, and its Commit writes nothing, even if the caller ignores the
// error. Statements on the *sql.Conn that tx was begun on are not part of tx.
//
// Four rules hold for the transaction:
//   - Close its rows before. While some are open Fence fails, and its rollback waits
//     until they have been read, or, if scanned into sql.RawBytes, closed.
//   - Call Fence outside any savepoint: a rollback to an older one undoes the fence.
//   - To fence it for several keys, use one order everywhere, or two transactions may
//     deadlock (40P01).
//   - On MySQL and MariaDB return on its first error, and use no DDL in it. A deadlock
//     (1213) and DDL end the transaction there. Later statements on the same tx are
//     then committed at once, unfenced.
//
// The lock must be a Session's. Its first Fence draws a token:
//   - With PostgreSQL's advisory locks on the lock's own session, for a round trip and
//     a flush of the write-ahead log. The token is the log's position there.
//   - On MySQL and MariaDB from a counter in a table, for a few round trips and a
//     commit. This needs a spare connection of the Session's pool.
//   - A lease table brings the token along with the lock. After a restart of the
//     server it draws another one, on a spare connection of the pool.
//
// After that Fence is one statement, and two on MySQL and MariaDB. Fenced
// transactions of one key run one after the other, since each locks the key's row
// in the table latchkey_fence until it ends. On SQLite each locks the whole file,
// also for the locks that are in it: see [SQLite].
//
// The transaction may be of another session, role, driver or database than the
// lock, or behind a transaction pooler. It must be on the server that granted the
// lock.
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

func fence(ctx context.Context, tx Tx, lock *Lock) error {
	token, err := lock.token(ctx)
	if err != nil {
		dialect.Spoil(ctx, tx)
		return err
	}
	passage, err := dialect.Fence(ctx, tx, lock.key.id(), *token)
	if passage == dialect.Elsewhere && token.Outlives {
		if token, err = lock.drawInstead(ctx, token); err != nil {
			dialect.Spoil(ctx, tx)
			return err
		}
		passage, err = dialect.Fence(ctx, tx, lock.key.id(), *token)
	}
	switch {
	case err != nil:
		return fenceError(err)
	case passage == dialect.Elsewhere:
		dialect.Spoil(ctx, tx)
		return ErrFenced
	case passage == dialect.Stopped:
		return ErrFenced
	}
	return nil
}

func fenceError(err error) error {
	switch dialect.SQLState(err) { // a right that is not there; a table, in PostgreSQL and in MySQL
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

// A draw is a call that waits for a token of lock in the place of old.
type draw struct {
	lock *Lock
	old  *dialect.Token
	err  error
	done chan struct{} // closed when there is a token, or err
}

// draw waits until lock, which is on l, has a token other than old.
func (l *lease) draw(ctx context.Context, lock *Lock, old *dialect.Token) error {
	d := &draw{lock: lock, old: old, done: make(chan struct{})}
	t := l.backend.s.table
	t.mu.Lock()
	l.draws = append(l.draws, d)
	l.backend.signal()
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-d.done:
		return d.err
	case <-l.gone:
		return ErrLost
	case <-ctx.Done():
		return ended(ctx)
	case <-timer.C:
		return errNoAnswer
	}
}

// drawTokens draws one token for all locks that wait for theirs, in a
// statement of its own: it is dear, and most locks never need one. It reports
// whether it sent anything.
//
// The token is right for each lock that is held when the statement is sent: to
// give one back takes a later statement of this same goroutine.
func (l *lease) drawTokens() bool {
	draws := l.takeDraws()
	if len(draws) == 0 {
		return false
	}
	l.watch.expect()
	token, err := l.session.Token()
	l.watch.answered()
	if err != nil && !l.bears(err) {
		return true
	}
	t := l.backend.s.table
	t.mu.Lock()
	l.answeredLocked(now())
	t.mu.Unlock()
	for _, d := range draws {
		if err == nil {
			d.lock.noteToken(d.old, &token)
		} else {
			d.err = txError(true, err)
		}
		close(d.done)
	}
	return true
}

// takeDraws is whose locks need a token and are held; the others get their
// answer.
func (l *lease) takeDraws() []*draw {
	t := l.backend.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.dead.Load() || len(l.draws) == 0 {
		return nil
	}
	all := l.draws
	l.draws = nil
	var draws []*draw
	for _, d := range all {
		if d.lock.entry.lock == d.lock && d.lock.drawn() == d.old {
			draws = append(draws, d)
		} else {
			close(d.done)
		}
	}
	if len(draws) > 0 {
		l.sendingLocked(l.backend.oldest) // who has queued waits for this, too
	}
	return draws
}
