package session

import (
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// The errors that callers compare with. Package sqllock exports them.
var (
	ErrUnavailable  = errors.New("sqllock: database is unavailable")
	ErrCapacity     = errors.New("sqllock: too many locks are held")
	ErrNotExclusive = errors.New("sqllock: locks do not exclude here")
	ErrConfig       = errors.New("sqllock: configuration is wrong")
)

// Why the database is unavailable.
var (
	errNoConnection = fmt.Errorf("%w: no connection", ErrUnavailable)
	ErrNoAnswer     = fmt.Errorf("%w: it does not answer", ErrUnavailable)
	errClosed       = fmt.Errorf("%w: the Session was closed before it answered", ErrUnavailable)
	errLost         = fmt.Errorf("%w: the connection was lost before it answered", ErrUnavailable)
)

// Why a request is denied though no other caller holds its key.
var (
	errMaxHeld = fmt.Errorf("%w: the limit of WithMaxHeld", ErrCapacity)
	ErrTooBig  = fmt.Errorf("%w: more keys at once than may be held (WithMaxHeld), or than a statement may carry (max_allowed_packet)", ErrCapacity)
	errFull    = fmt.Errorf("%w: the server's lock table, which all its clients share, has no room for more", ErrCapacity)

	// ErrReaders is the error of readers' locks where the database has none.
	ErrReaders = fmt.Errorf("sqllock: only PostgreSQL's advisory locks have readers' locks, TryRLock and RLock: %w", errors.ErrUnsupported)
)

// isKind reports whether err is a failure of this kind.
func isKind(err error, kind dialect.Kind) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && failure.Kind == kind
}

// FromDialect adds to an error of the dialect the sentinel that callers compare
// with. The driver's own error is not in it: its text names hosts and users.
func FromDialect(err error) error {
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
			sentinel = keytable.ErrClosed
		}
		return fmt.Errorf("%w: %w", sentinel, failure)
	}
	return fmt.Errorf("%w: %w", sentinel, err) // a context's: its text is constant
}

// A loss is why a connection was lost: in a word for figures, and for the log.
// Neither holds a key or a host.
type loss struct{ cause, reason string }

// The causes, which [Stats].LossesBy explains. They are labels of metrics, so
// there are few, and they stay.
const (
	causeLease        = "lease"
	causeConnection   = "connection"
	causeNotExclusive = "not_exclusive"
	causeLockMissing  = "lock_missing"
)

// The losses that this process finds out by itself.
var (
	lossLease  = loss{causeLease, "no answer for the length of the lease"}
	lossUnlock = loss{causeLockMissing, "a lock was not there when it was given back"}
	lossHeld   = loss{causeLockMissing, "a lock was not there any more"}
)

// lossBy returns the loss of c by err, with which a statement has failed. The
// words of err are for the log alone.
//
// The server ends the silent session of a process that is frozen for the length
// of the lease. The next statement fails then. The cause is the lease, whatever
// the error says.
func (c *connection) lossBy(err error) loss {
	switch {
	case isKind(err, dialect.NotExclusive):
		return loss{causeNotExclusive, err.Error()}
	case c.Expired():
		return lossLease
	}
	return loss{causeConnection, err.Error()}
}
