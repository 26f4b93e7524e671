package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The errors of a Locker and of its locks. Compare with errors.Is, since most
// come with a reason after this text. No text holds a key, a host or a
// connection string.
var (
	// ErrHeld: another caller holds the key, in this process or elsewhere, or
	// waits for it in this process.
	ErrHeld = errors.New("sqllock: key is held")

	// ErrLost: the lock was held, and another caller may hold it now. The work
	// of the lock should stop.
	ErrLost = errors.New("sqllock: lock was lost")

	// ErrReleased: Unlock has released the lock.
	ErrReleased = errors.New("sqllock: lock was released")

	// ErrClosed: the Locker was closed, or the connection that it uses.
	ErrClosed = errors.New("sqllock: locker is closed")

	// ErrUnavailable: the database does not respond. No lock was granted. A
	// later attempt may succeed.
	ErrUnavailable = errors.New("sqllock: database is unavailable")

	// ErrCapacity: the limit of [WithMaxHeld] is reached, or the server's lock
	// table, which all its clients share, has no room for another lock.
	ErrCapacity = errors.New("sqllock: too many locks are held")

	// ErrNotExclusive: on this connection two callers might hold one key, as
	// behind a transaction pooler, on a standby, or on a server that only
	// resembles PostgreSQL.
	ErrNotExclusive = errors.New("sqllock: locks do not exclude here")

	// ErrConfig: the database or the pool rejects this program, and waiting
	// does not help. Examples are a wrong password, a missing database, right
	// or table, and a pool of one connection. An open Session tries again, so
	// it recovers when a person has corrected the cause.
	ErrConfig = errors.New("sqllock: configuration is wrong")
)

// A GroupError reports that a group of TryEach had no key that was free. It
// matches ErrHeld.
type GroupError struct {
	Group int // its index, from 0
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("sqllock: no key of group %d is free", e.Group)
}

// Is makes errors.Is(err, ErrHeld) hold.
func (e *GroupError) Is(target error) bool { return target == ErrHeld }

// ErrFenced is the error of [Fence] for a lock that is stale where the
// transaction writes. Either a transaction of a later holder has been fenced
// there, or the server there is not the one that granted the lock, or it has
// restarted since.
var ErrFenced = errors.New("sqllock: the fence rejected a stale lock: a later holder has been fenced," +
	" or the transaction's server is not the one that granted the lock, or has restarted since")

// Why the database is unavailable.
var (
	errNoConnection  = fmt.Errorf("%w: no connection", ErrUnavailable)
	errNoAnswer      = fmt.Errorf("%w: it does not answer", ErrUnavailable)
	errSessionClosed = fmt.Errorf("%w: the Session was closed before it answered", ErrUnavailable)
	errSessionLost   = fmt.Errorf("%w: the connection was lost before it answered", ErrUnavailable)
)

// Why a request is denied though no other caller holds its key.
var (
	errMaxHeld  = fmt.Errorf("%w: the limit of WithMaxHeld", ErrCapacity)
	errReaders  = fmt.Errorf("sqllock: only PostgreSQL's advisory locks have readers' locks, TryRLock and RLock: %w", errors.ErrUnsupported)
	errManyKeys = fmt.Errorf("%w: more keys at once than may be held (WithMaxHeld), or than a statement may carry (max_allowed_packet)", ErrCapacity)
)

// errManyGroups is the error for groups that no statement may carry.
var errManyGroups = fmt.Errorf("%w: TryEach with more groups than locks may be held (WithMaxHeld), or with more keys beyond them than a statement asks about (1,024): use fewer levels, or limits closer to their bounds", ErrCapacity)

// errNoKeys is the error of a call for several keys without any.
var errNoKeys = errors.New("sqllock: TryAny, LockAny, TryLockAll and LockAll need a key at least")

// fromDialect adds to an error of the dialect the sentinel that callers compare
// with. The driver's own error is not in it: its text names hosts and users.
func fromDialect(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrConfig) { // it is in callers' terms already
		return err
	}
	sentinel := ErrUnavailable
	var failure *dialect.Failure
	if errors.As(err, &failure) {
		switch {
		case failure.Permanent:
			sentinel = ErrConfig
		case failure.Kind == dialect.NotExclusive:
			sentinel = ErrNotExclusive
		case failure.Kind == dialect.Full:
			sentinel = ErrCapacity
		case failure.Kind == dialect.Closed:
			sentinel = ErrClosed
		}
		return fmt.Errorf("%w: %w", sentinel, failure)
	}
	return fmt.Errorf("%w: %w", sentinel, err) // a context's: its text is constant
}

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
		return fromDialect(err)
	}
	return err // the caller's context has ended
}

// ended returns the error of a call whose ctx has ended: ctx's own, after
// ErrLost if the loss of a lock has ended ctx.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) { // of the lock's Session
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// isUnavailable reports whether err means that the database is away.
func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }
