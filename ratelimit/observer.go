package ratelimit

import "time"

// An Observer is told what a Limiter does: for metrics and logs. Each func may
// be nil. They are called in the goroutine of the request, or of the lock's
// session for Lost, at the moment it happens: they must not block or panic, and
// must be safe for concurrent use. They learn durations and errors, never ids.
//
// Each Acquire calls exactly one of Admitted, Refused and FailedOpen, and each
// admission with a lock is followed, after Admitted has returned, by one of
// Released and Lost. Refused is told of each [Limiter.Refuse] besides: of requests
// without an id, and by package grpcmw, once for a stream, of a message sent before
// the stream was admitted, whatever becomes of the stream itself.
type Observer struct {
	Admitted   func()                   // a request got its lock
	Refused    func(err error)          // a request was refused, or would have been but for a dry run
	FailedOpen func(err error)          // a request was admitted without a lock: see WithFailOpen
	Waited     func(d time.Duration)    // a request waited for a busy id, in vain or not
	Released   func(held time.Duration) // a lock was given back
	Lost       func(held time.Duration) // a lock was lost: its connection ended, or its Session was closed
}

func (o *Observer) admitted() {
	if o.Admitted != nil {
		o.Admitted()
	}
}

func (o *Observer) refused(err error) {
	if o.Refused != nil {
		o.Refused(err)
	}
}

func (o *Observer) failedOpen(err error) {
	if o.FailedOpen != nil {
		o.FailedOpen(err)
	}
}

// waited reports a wait; d is 0 for a request that did not wait.
func (o *Observer) waited(d time.Duration) {
	if o.Waited != nil && d > 0 {
		o.Waited(d)
	}
}

func (o *Observer) released(held time.Duration) {
	if o.Released != nil {
		o.Released(held)
	}
}

func (o *Observer) lost(held time.Duration) {
	if o.Lost != nil {
		o.Lost(held)
	}
}
