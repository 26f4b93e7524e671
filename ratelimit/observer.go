package ratelimit

import "time"

// An Observer gets the events of a Limiter, for metrics and logs. Each func may
// be nil. A func is called when its event happens, in the goroutine of the
// request. Lost may be called in the goroutine of the lock's session. The funcs
// must not block or panic, and must be safe for concurrent use. They get
// durations and errors, never ids.
//
// Each Acquire calls exactly one of Admitted, Refused and FailedOpen. After
// Admitted for a lock has returned, exactly one of Released and Lost follows.
//
// Refused is also called for each [Limiter.Refuse]: for requests without an id,
// and by package grpcmw for a message that is sent before its stream is
// admitted. The latter happens once for a stream, and does not depend on the
// end of the stream.
type Observer struct {
	Admitted   func()                   // a request got its lock
	Refused    func(err error)          // a request was rejected, or would have been without the dry run
	FailedOpen func(err error)          // a request was admitted without a lock: see WithFailOpen
	Waited     func(d time.Duration)    // a request waited for a busy id, with or without success
	Released   func(held time.Duration) // a lock was released
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
