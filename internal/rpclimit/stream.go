package rpclimit

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// ErrNeedMessage is that of both packages.
var ErrNeedMessage = errors.New("ratelimit: the key is in the stream's first message")

// errNoMessage is for a call without the message in which its key is. Clients
// cause it, so it is no ErrNoKey, which is logged.
var errNoMessage = &told{ratelimit.ErrBadID, "the stream ended before its first message"}

var (
	earlySend = Status{Reason: admission.Fault, Code: code.Code_FAILED_PRECONDITION, Text: "A message was sent before the first one was received: the stream has no lock yet."}
	returned  = Status{Reason: admission.Ended, Code: code.Code_CANCELLED, Text: "The handler has returned."}
	lockLost  = Status{Reason: admission.Interrupted, Code: code.Code_ABORTED, Text: "The lock was lost.", Err: sqllock.ErrLost}
)

// A Stream is a stream behind an interceptor.
//
// Invariant: it is undecided first, and then admitted or rejected, which does
// not change any more.
//
// One goroutine may be in Receive while another is in Send, and a third, that
// of the handler, returns.
type Stream[C any] struct {
	guard  *Guard[C]
	method string
	call   C
	ctx    *streamContext
	failed func(*Status) error // makes an error of the transport

	request  admission.Request        // used by Serve, and then by the decision
	pending  []*ratelimit.Limiter     // of an undecided stream: what it needs; set by Serve
	decision atomic.Pointer[decision] // nil while undecided

	mu       sync.Mutex    // protects ended and deciding; never held while calling out
	ended    bool          // the handler has returned
	deciding chan struct{} // of the decision that has begun, closed at its end; nil if none has

	early    sync.Once // decides on earlyErr
	earlyErr error     // of Send while undecided
}

// A decision is the locks of a stream, or the reason why there are none.
type decision struct {
	held      admission.Held
	carried   admission.Held // what the stream's context carries: no lock of a dry run
	unbind    func()         // removes held from the stream's context
	rejection error
}

// NewStream returns an undecided stream. ctx is that of call. failed makes an
// error of the transport from a Status.
func (g *Guard[C]) NewStream(ctx context.Context, method string, call C, failed func(*Status) error) *Stream[C] {
	return &Stream[C]{guard: g, method: method, call: call, ctx: newStreamContext(ctx), failed: failed}
}

// Context returns the same context before and after the first message.
func (s *Stream[C]) Context() context.Context { return s.ctx }

// Serve decides on the stream, unless a KeyFunc needs the first message. Then
// it calls handler, and returns how the stream ends.
func (s *Stream[C]) Serve(handler func() error) error {
	defer s.end()
	identified := s.guard.identify(s.ctx, s.method, s.call, admission.ErrLater, &s.request)
	if identified == admission.ErrLater { //nolint:errorlint // Identify returns it as it is
		s.pending = s.guard.Pending(&s.request)
	} else if err := s.decide(func(context.Context) error { return identified }); err != nil {
		return err
	}
	err := handler()
	d := s.decision.Load()
	switch {
	case d == nil: // it has no lock, and a decision may still use s.request
		return err
	case d.rejection != nil:
		return d.rejection
	}
	result := s.guard.result(s.ctx.around, s.ctx, &s.request, d.held, err)
	if interrupted, ok := result.(*Status); ok { //nolint:errorlint // result returns it as it is
		return s.failed(interrupted)
	}
	return result
}

// Receive calls receive, which receives message. With the first message of an
// undecided stream it decides.
func (s *Stream[C]) Receive(message any, receive func(message any) error) error {
	d := s.decision.Load()
	if d != nil {
		if err := s.stopped(d); err != nil {
			return err
		}
	}
	err := receive(message)
	switch {
	case d != nil && err == nil:
		return s.stopped(d) // it may have been a long wait
	case d == nil && err == nil:
		return s.identified(s.guard.With(s.call, message), ErrNeedMessage)
	case d == nil && errors.Is(err, io.EOF): // no message will come, and so no key
		if rejection := s.identified(s.call, errNoMessage); rejection != nil {
			return rejection
		}
	}
	return err
}

// Send calls send, which sends message, if the stream is admitted. An undecided
// stream may send if all its levels are in a dry run. The Observer of the first
// level that is not gets the error, once.
func (s *Stream[C]) Send(message any, send func(message any) error) error {
	if d := s.decision.Load(); d != nil {
		if err := s.stopped(d); err != nil {
			return err
		}
		return send(message)
	}
	s.early.Do(func() {
		for i := 0; i < len(s.pending) && s.earlyErr == nil; i++ {
			s.earlyErr = inside.Refuse(s.ctx, s.pending[i], s.failed(&earlySend))
		}
	})
	if s.earlyErr != nil {
		return s.earlyErr
	}
	return send(message)
}

// identified decides on a stream by call, which has the first message if there
// is one. missing is that of identify. It returns the rejection.
func (s *Stream[C]) identified(call C, missing error) error {
	return s.decide(func(ctx context.Context) error {
		return s.guard.identify(ctx, s.method, call, missing, &s.request)
	})
}

// decide identifies the stream and acquires its locks. It returns the rejection,
// after it has ended the stream's context.
func (s *Stream[C]) decide(identify func(context.Context) error) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return s.failed(&returned)
	}
	s.deciding = done
	s.mu.Unlock()
	defer close(done)

	var held admission.Held
	err := identify(s.ctx)
	if err == nil {
		held, err = s.guard.Acquire(s.ctx, s.method, &s.request, nil)
	}
	if err != nil {
		rejection := s.failed(s.guard.rejection(s.ctx, err))
		s.decision.Store(&decision{rejection: rejection}) // before the handler sees its context end
		s.ctx.cancel(rejection)
		return rejection
	}
	carried, unbind := s.ctx.carry(held)
	s.decision.Store(&decision{held: held, carried: carried, unbind: unbind})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return s.failed(&returned) // end gives the locks back
	}
	return nil
}

// end ends the stream's context, and then releases the locks. It waits for a
// decision that another goroutine is making, so that the key is free when the
// client learns how the call ended.
func (s *Stream[C]) end() {
	s.mu.Lock()
	s.ended = true
	deciding := s.deciding
	s.mu.Unlock()
	d := s.decision.Load()
	if d == nil && deciding != nil {
		s.ctx.cancel(context.Canceled)
		<-deciding
		d = s.decision.Load()
	}
	if d != nil && d.rejection == nil {
		d.unbind()
		defer func() { _ = d.held.Unlock() }() // a loss has ended the handler's context
	}
	s.ctx.cancel(context.Canceled)
}

// stopped returns why no more messages may be received or sent, or nil.
func (s *Stream[C]) stopped(d *decision) error {
	switch {
	case d.rejection != nil:
		return d.rejection
	case d.carried.Lost():
		return s.failed(&lockLost)
	}
	return nil
}
