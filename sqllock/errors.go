package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// What a locker answers when it does not grant. Compare with errors.Is: most
// come with a reason after the sentinel's text. None holds a key, a host or a
// connection string.
var (
	// ErrHeld: someone else holds the key, here or in another process, or
	// waits for it in this process.
	ErrHeld = errors.New("sqllock: key is held")

	// ErrLost: the lock was held and is no longer certainly held. Its work
	// should stop.
	ErrLost = errors.New("sqllock: lock was lost")

	// ErrReleased: the lock was given back by Unlock.
	ErrReleased = errors.New("sqllock: lock was released")

	// ErrClosed: the locker was closed, or the connection it lives on was.
	ErrClosed = errors.New("sqllock: locker is closed")

	// ErrUnavailable: the database does not answer now. Nothing was granted. It may
	// answer soon.
	ErrUnavailable = errors.New("sqllock: database is unavailable")

	// ErrCapacity: the limit of [WithMaxHeld] is reached, or the server's lock
	// table, which all its clients share, has no room for another lock.
	ErrCapacity = errors.New("sqllock: too many locks are held")

	// ErrNotExclusive: it could not be shown that locks exclude on this
	// connection: a transaction pooler, a standby, a look-alike.
	ErrNotExclusive = errors.New("sqllock: locks do not exclude here")

	// ErrConfig: the database, or the pool, rejects this program for what waiting
	// does not mend: a wrong password, a database that does not exist, a missing
	// right or table, a pool of one connection. A Session that is open goes on
	// trying, so that it recovers when a person has mended it.
	ErrConfig = errors.New("sqllock: configuration is wrong")
)

// fromDialect gives an error of the dialect its sentinel. The driver's own
// error is not in it on purpose: its text names hosts and users.
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

// inTime is err of an attempt that we ourselves have bounded: the end of our own
// context must not pass for that of a caller's.
func inTime(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &dialect.Failure{Kind: dialect.Gone, Reason: "no answer within " + connectTimeout.String()}
	}
	return err
}
