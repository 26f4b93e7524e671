package ratelimit

import (
	"errors"
	"time"
)

// What Acquire answers when it does not admit, beside the errors of package
// sqllock. Compare with errors.Is. None holds an id.
var (
	// ErrBusy: as many requests as the limit allows are being served for this
	// id. The error is a [*BusyError].
	ErrBusy = errors.New("ratelimit: key is busy")

	// ErrBadID: the id is empty, longer than 1 KiB (or [WithMaxIDLen]'s limit),
	// not UTF-8, or holds a NUL byte. The text says which.
	ErrBadID = errors.New("ratelimit: bad id")

	// ErrMaxHold is the cause with which a lock's contexts end when its work
	// has taken longer than [WithMaxHold] allows.
	ErrMaxHold = errors.New("ratelimit: work took longer than its lock may be held")
)

// A BusyError is a refusal because the limit for an id is reached. It matches
// [ErrBusy].
//
// Its text leaves the id out, since an id may be personal data: an error can be
// logged without thought.
type BusyError struct {
	Namespace  string        // of the limiter that refused
	RetryAfter time.Duration // when trying again may succeed; more than zero
}

func (e *BusyError) Error() string { return "ratelimit: " + e.Namespace + ": key is busy" }

// Is makes errors.Is(err, ErrBusy) hold.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// busy is the refusal of this moment.
func (l *Limiter) busy() error {
	return &BusyError{Namespace: string(l.ns), RetryAfter: l.retry()}
}
