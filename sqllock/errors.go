package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

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

// fromDialect adds to an error of the dialect the sentinel that callers compare
// with. The driver's own error is not in it: its text names hosts and users.
func fromDialect(err error) error {
	if err == nil {
		return nil
	}
	if registry := (*enrollError)(nil); errors.As(err, &registry) {
		return registry
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

// inTime returns err of an attempt with a bound of our own. The end of our own
// context must not look like the end of a caller's.
func inTime(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &dialect.Failure{Kind: dialect.Gone, Reason: "no answer within " + connectTimeout.String()}
	}
	return err
}

// ended returns the error of a call whose ctx has ended: ctx's own, after ErrLost
// if the loss of a lock has ended ctx.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) { // of the lock's Session
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// inContext returns err, of a call on a transaction, with what has ended ctx: of
// that some drivers report only that the server has cancelled the statement. The
// loss of the lock that ctx carries is part of the error too, if a context of
// the lock has ended the transaction and not the call.
func inContext(ctx context.Context, err error) error {
	var (
		ofContext = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		decided   = slices.ContainsFunc([]error{ErrLost, ErrReleased, ErrFenced, ErrHeld}, func(sentinel error) bool { return errors.Is(err, sentinel) })
	)
	switch {
	case err == nil, decided:
		return err
	case ctx.Err() != nil && ofContext:
		return ended(ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case ofContext, errors.Is(err, sql.ErrTxDone):
		if lock, ok := FromContext(ctx); ok && errors.Is(lock.Err(), ErrLost) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}
