package rpclimit

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/places"
)

// A Stream is a stream behind an interceptor.
//
// Invariant: it is undecided first, and then admitted or rejected, which does
// not change any more.
//
// One goroutine may be in Receive while another is in Send, and a third, that
// of the handler, returns.
type Stream struct {
	call StreamCall
	ctx  *streamContext

	admission atomic.Pointer[admission] // nil while undecided

	mu       sync.Mutex    // protects ended and deciding; never held while calling out
	ended    bool          // the handler has returned
	deciding chan struct{} // of the admission that has begun, closed at its end; nil if none has

	early    sync.Once // decides on earlyErr
	earlyErr error     // of Send while undecided
}

// A StreamCall is what a Stream needs of its transport.
type StreamCall struct {
	// Admit decides with the first message, which is nil if the stream has ended
	// without one. It returns the locks or the rejection.
	Admit func(ctx context.Context, message any) (places.Held, error)

	// SendsEarly returns the error of messages that are sent while the stream is
	// undecided, or nil if they may be. It is called at most once.
	SendsEarly func(ctx context.Context) error

	Ended error // the handler has returned
	Lost  error // a lock is lost
}

// An admission is the locks, or the reason why there are none.
type admission struct {
	held      places.Held
	carried   places.Held // what the stream's context carries: no lock of a dry run
	unbind    func()      // removes held from the stream's context
	rejection error
}

// NewStream returns an undecided stream. ctx is that of the call.
func NewStream(ctx context.Context, call StreamCall) *Stream {
	return &Stream{call: call, ctx: newStreamContext(ctx)}
}

// Context returns the same context before and after the first message.
func (s *Stream) Context() context.Context { return s.ctx }

// Receive calls receive, which receives message. With the first message of an
// undecided stream it decides.
func (s *Stream) Receive(message any, receive func(message any) error) error {
	if a := s.admission.Load(); a != nil {
		if err := s.failed(a); err != nil {
			return err
		}
		if err := receive(message); err != nil {
			return err
		}
		return s.failed(a) // it may have been a long wait
	}
	switch err := receive(message); {
	case err == nil:
		return s.Decide(func(ctx context.Context) (places.Held, error) { return s.call.Admit(ctx, message) })
	case errors.Is(err, io.EOF): // no message will come, and so no key
		none := func(ctx context.Context) (places.Held, error) { return s.call.Admit(ctx, nil) }
		if rejection := s.Decide(none); rejection != nil {
			return rejection
		}
		return err
	default:
		return err
	}
}

// Send calls send, which sends message, if the stream is admitted.
func (s *Stream) Send(message any, send func(message any) error) error {
	a := s.admission.Load()
	if a == nil {
		s.early.Do(func() { s.earlyErr = s.call.SendsEarly(s.ctx) })
		if s.earlyErr != nil {
			return s.earlyErr
		}
		return send(message)
	}
	if err := s.failed(a); err != nil {
		return err
	}
	return send(message)
}

// Decide decides on the stream by admit, which returns the locks or the
// rejection. It returns the rejection, after it has ended the stream's context.
func (s *Stream) Decide(admit func(context.Context) (places.Held, error)) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return s.call.Ended
	}
	s.deciding = done
	s.mu.Unlock()
	defer close(done)

	held, rejection := admit(s.ctx)
	if rejection != nil {
		s.admission.Store(&admission{rejection: rejection}) // before the handler sees its context end
		s.ctx.cancel(rejection)
		return rejection
	}
	carried, unbind := s.ctx.carry(held)
	s.admission.Store(&admission{held: held, carried: carried, unbind: unbind})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return s.call.Ended // End gives the locks back
	}
	return nil
}

// End ends the stream's context, and then releases the locks. It waits for an
// admission that still runs in another goroutine, so that the key is free when
// the client learns how the call ended.
func (s *Stream) End() {
	s.mu.Lock()
	s.ended = true
	deciding := s.deciding
	s.mu.Unlock()
	a := s.admission.Load()
	if a == nil && deciding != nil {
		s.ctx.cancel(context.Canceled)
		<-deciding
		a = s.admission.Load()
	}
	if a == nil || a.rejection != nil {
		s.ctx.cancel(context.Canceled)
		return
	}
	a.unbind()
	s.ctx.cancel(context.Canceled)
	_ = a.held.Unlock() // a loss has ended the handler's context
}

// Held returns the locks of the stream, and whether it is decided.
func (s *Stream) Held() (held places.Held, decided bool) {
	if a := s.admission.Load(); a != nil {
		return a.held, true
	}
	return places.Held{}, false
}

// Rejection returns why the stream was rejected, or nil.
func (s *Stream) Rejection() error {
	if a := s.admission.Load(); a != nil {
		return a.rejection
	}
	return nil
}

// failed returns why no more messages may be received or sent, or nil.
func (s *Stream) failed(a *admission) error {
	if a.rejection != nil {
		return a.rejection
	}
	if a.carried.Lost() {
		return s.call.Lost
	}
	return nil
}
