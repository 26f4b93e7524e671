package ratelimit

import (
	"errors"
	"fmt"
	"time"
)

// Errors of [Limiter.Acquire] and [AcquireAll], in addition to those of package
// sqllock, those of the KeyFuncs of httpmw, grpcmw and connectmw, and the cause
// of [WithMaxHold]. Compare with errors.Is. No error holds an id.
var (
	// ErrBusy reports that as many requests as the limit allows are being
	// served for this id. The error is a [*BusyError].
	ErrBusy = errors.New("ratelimit: key is busy")

	// ErrBadID reports that the id is empty, not UTF-8, holds a NUL byte, or is
	// longer than 1 KiB (see [WithMaxIDLen]). The text says which.
	ErrBadID = errors.New("ratelimit: bad id")

	// ErrNoKey is what a KeyFunc of the middleware returns for a request that has
	// no id. The text says where the id should be.
	ErrNoKey = errors.New("ratelimit: no key in the request")

	// ErrBypass is what a KeyFunc of the middleware returns for a request that is
	// not limited, such as one of an administrator. Nothing is locked, and the
	// Observer gets no event.
	ErrBypass = errors.New("ratelimit: the request is not limited")

	// ErrPolicy reports that a function of the policy returned what the Limiter
	// cannot use, or that a request needs two places of one limit. The text names
	// the limit, and says what to change.
	ErrPolicy = errors.New("ratelimit: bad policy")

	// ErrMaxHold is the cause with which a lock's contexts end when its work
	// has taken longer than [WithMaxHold] allows.
	ErrMaxHold = errors.New("ratelimit: work took longer than its lock may be held")
)

// A BusyError reports that the limit for an id is reached. It matches
// [ErrBusy].
//
// Its text does not hold the id, which may be personal data. So the error can
// be logged.
type BusyError struct {
	Namespace  string        // of the limiter that rejected the request
	Limit      int           // how many places the request could have: the limit of its id, without those reserved for other classes
	RetryAfter time.Duration // when trying again may succeed; more than zero
}

func (e *BusyError) Error() string { return "ratelimit: " + e.Namespace + ": key is busy" }

// Is makes errors.Is(err, ErrBusy) hold.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// explain adds to the error of a locker which limiter it comes from.
func (l *Limiter) explain(err error) error { return fmt.Errorf("ratelimit: %s: %w", l.ns, err) }

// busy returns the BusyError of this moment.
func (p *place) busy() error {
	return &BusyError{Namespace: string(p.l.ns), Limit: len(p.slots), RetryAfter: p.retryAfter()}
}
