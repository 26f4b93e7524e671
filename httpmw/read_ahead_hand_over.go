package httpmw

import (
	"context"
)

// handOver begins the handler's part. From now on only its Read reads the body.
func (a *readAhead) handOver() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
}

// forHandler returns the request's context without the end that cut causes: the
// server takes the deadline of cut for a client that leaves.
func (a *readAhead) forHandler() (context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(a.Context)
	stopTimer := func() {}
	if deadline, ok := a.Context.Deadline(); ok {
		ctx, stopTimer = context.WithDeadline(ctx, deadline)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.Context, func() {
		if !a.wasCut.Load() {
			cancel(context.Cause(a.Context))
		}
	})
	return ctx, func() {
		stop()
		cancel(nil)
		stopTimer()
	}
}

// Read is for the handler, after handOver.
func (a *readAhead) Read(p []byte) (int, error) {
	if n := a.pass(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	<-a.ended
	if n := a.pass(p); n > 0 {
		return n, nil
	}
	if a.panicked != nil {
		panic(a.panicked)
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.body.Read(p)
}

// pass copies to p what was read and not passed on yet.
func (a *readAhead) pass(p []byte) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := copy(p, a.buf[a.passed:])
	a.passed += n
	return n
}

// Close ends a Read under way first, for which it would wait otherwise.
func (a *readAhead) Close() error {
	a.cut()
	return a.body.Close()
}
