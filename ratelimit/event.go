package ratelimit

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An Observer gets the events of a Limiter, for metrics, traces and logs. See
// [WithObserver].
//
// ctx is that of the request, also at the end of the hold. It may have ended.
//
// An Observer is called when the event happens, in the goroutine of the
// request. Lost may be reported in a goroutine of the lock's Session. An
// Observer must not block or panic, and must be safe for concurrent use. It
// never gets an id.
type Observer func(ctx context.Context, e Event)

// An Event is what a [Limiter] has decided about a request, or the end of a
// hold. It holds no id.
//
// Each Acquire makes one event with one of the first seven results. A hold ends
// with one event more, after that of its admission.
//
// An [AcquireAll] that is admitted makes an event of each level. One that is
// rejected makes one event, of the level that has decided.
//
// The middleware adds an event for each request without an id. Package grpcmw
// also adds one for a message that is sent before its stream is admitted. That
// happens once for a stream, and does not depend on the end of the stream.
type Event struct {
	Namespace sqllock.Namespace // of the Limiter
	Limit     int               // how many requests the Limiter admits at a time for this id
	Result    Result
	Waited    time.Duration // of a decision: how long the request waited for a place of this Limiter; 0: it did not
	Held      time.Duration // of Released and Lost
	Err       error         // nil for Admitted and Released; of DryRun: the error without the dry run
}

// A Result is a decision of a [Limiter], or the end of a hold. Its text is a
// label for metrics.
type Result string

// The decisions. Each request has one of them.
const (
	Admitted    Result = "admitted"     // the request has its lock
	Busy        Result = "busy"         // rejected at once: the limit for its id is reached
	WaitTimeout Result = "wait_timeout" // rejected after the wait that [WithWait] allows
	Canceled    Result = "canceled"     // the context of the request ended first
	FailedOpen  Result = "failed_open"  // admitted without a lock: see [WithFailOpen]
	DryRun      Result = "dry_run"      // admitted without a lock, and rejected without [WithDryRun]
	Failed      Result = "error"        // rejected for another reason: a bad id, a database that is away
)

// The ends of a hold. Each request that was Admitted has one of them.
const (
	Released Result = "released" // by Unlock
	Lost     Result = "lost"     // the connection ended, or its Session was closed
)

// tell tells the Observers of e.
func (l *Limiter) tell(ctx context.Context, e Event) {
	e.Namespace = l.ns
	for _, observe := range l.observers {
		observe(ctx, e)
	}
}
