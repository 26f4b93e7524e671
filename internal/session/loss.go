package session

import "github.com/latchkey-go/latchkey/internal/dialect"

// Why a connection was lost.

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

// lossRelease returns the loss of a connection that cannot give locks back, by
// the last error.
func lossRelease(err error) loss {
	return loss{causeConnection, "locks could not be given back, again and again: " + err.Error()}
}

// lossBy returns the loss of c by err, with which a statement has failed. The
// words of err are for the log alone.
//
// A process that was frozen for the length of the lease often learns of it by
// an error: the server has ended its silent session. The cause is the lease
// then, whatever the error says.
func (c *connection) lossBy(err error) loss {
	switch {
	case isKind(err, dialect.NotExclusive):
		return loss{causeNotExclusive, err.Error()}
	case c.Expired():
		return lossLease
	}
	return loss{causeConnection, err.Error()}
}
