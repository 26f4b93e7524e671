package sqllock

import (
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// The errors of a Locker and of its locks. Compare with errors.Is, since most
// come with a reason after this text. No text holds a key, a host or a
// connection string.
var (
	// ErrHeld: another caller holds the key, in this process or elsewhere, or
	// waits for it in this process.
	ErrHeld = keytable.ErrHeld

	// ErrLost: the lock was held, and another caller may hold it now. The work
	// of the lock should stop.
	ErrLost = keytable.ErrLost

	// ErrReleased: Unlock has released the lock.
	ErrReleased = errors.New("sqllock: lock was released")

	// ErrClosed: the Locker was closed, or the connection that it uses.
	ErrClosed = keytable.ErrClosed

	// ErrUnavailable: the database does not respond. No lock was granted. A
	// later attempt may succeed.
	ErrUnavailable = session.ErrUnavailable

	// ErrCapacity: the limit of [WithMaxHeld] is reached, or the server's lock
	// table, which all its clients share, has no room for another lock.
	ErrCapacity = session.ErrCapacity

	// ErrNotExclusive: on this connection two callers might hold one key, as
	// behind a transaction pooler, on a standby, or on a server that only
	// resembles PostgreSQL.
	ErrNotExclusive = session.ErrNotExclusive

	// ErrConfig: the database or the pool rejects this program, and waiting
	// does not help. Examples are a wrong password, a missing database, right
	// or table, and a pool of one connection. An open Session tries again, so
	// it recovers when a person has corrected the cause.
	ErrConfig = session.ErrConfig
)

// ErrFenced is the error of [Fence] for a lock that is stale where the
// transaction writes. Either a transaction of a later holder has been fenced
// there, or the server there is not the one that granted the lock, or it has
// restarted since.
var ErrFenced = errors.New("sqllock: the fence rejected a stale lock: a later holder has been fenced," +
	" or the transaction's server is not the one that granted the lock, or has restarted since")

// errNoKeys is the error of a call for several keys without any.
var errNoKeys = errors.New("sqllock: TryAny, LockAny, TryLockAll and LockAll need a key at least")

// txError returns the error of a call on a transaction: nil if ok, ErrHeld if
// not. An error of the server keeps its SQLSTATE.
func txError(ok bool, err error) error {
	var failure *dialect.Failure
	switch {
	case err == nil && ok:
		return nil
	case err == nil:
		return ErrHeld
	case errors.As(err, &failure) && (failure.Kind == dialect.Statement || failure.Kind == dialect.Closed):
		return fmt.Errorf("sqllock: %w", failure)
	case errors.As(err, &failure):
		return session.FromDialect(err)
	}
	return err // the caller's context has ended
}
