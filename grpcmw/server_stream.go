package grpcmw

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A serverStream is a stream behind the interceptor: not admitted yet, admitted,
// or refused. The last two are for good.
//
// One goroutine may be in RecvMsg while another is in SendMsg and a third, the
// handler's, returns.
type serverStream struct {
	grpc.ServerStream
	guard *guard
	call  interceptors.CallMeta
	ctx   *streamContext

	verdict atomic.Pointer[streamVerdict] // nil until there is one

	mu       sync.Mutex    // protects ended and deciding; never held while calling out
	ended    bool          // the handler has returned
	deciding chan struct{} // of the admission that has begun, closed at its end; nil if none has

	early    sync.Once // decides on earlyErr
	earlyErr error     // of SendMsg before there is a verdict
}

// A streamVerdict is a lock, which may be nil in a dry run or failed open, or why
// there is none.
type streamVerdict struct {
	lock    *sqllock.Lock
	carried bool   // lock is in the stream's context: not so in a dry run
	unbind  func() // takes lock out of the stream's context
	refusal error
}

var (
	errEarlySend = status.Error(codes.FailedPrecondition, "grpcmw: SendMsg before the first message was received: the stream has no lock yet")
	errEnded     = status.Error(codes.Canceled, "grpcmw: the handler has returned")
)

func newStream(g *guard, ss grpc.ServerStream, call interceptors.CallMeta) *serverStream {
	return &serverStream{ServerStream: ss, guard: g, call: call, ctx: newStreamContext(ss.Context())}
}

// Context is the same before and after the first message.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg receives a message. With the first of a stream that is not admitted
// yet it asks for the lock.
func (s *serverStream) RecvMsg(m any) error {
	if v := s.verdict.Load(); v != nil {
		if err := v.failed(); err != nil {
			return err
		}
		if err := s.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		return v.failed() // it may have been a long wait
	}
	switch err := s.ServerStream.RecvMsg(m); {
	case err == nil:
		call := s.call
		call.ReqOrNil = m
		return s.admit(s.guard.key(s.ctx, call))
	case errors.Is(err, io.EOF): // no message will come, and so no key
		if refusal := s.admit("", errNoMessage); refusal != nil {
			return refusal
		}
		return err
	default:
		return err
	}
}

// SendMsg sends a message of a stream that is admitted.
func (s *serverStream) SendMsg(m any) error {
	v := s.verdict.Load()
	if v == nil {
		if err := s.sendsEarly(); err != nil {
			return err
		}
		return s.ServerStream.SendMsg(m)
	}
	if err := v.failed(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// sendsEarly is what a message sent before the lock is there fails with: nil in
// a dry run, which is told of it once.
func (s *serverStream) sendsEarly() error {
	s.early.Do(func() { s.earlyErr = s.guard.limiter.Refuse(errEarlySend) })
	return s.earlyErr
}

// admit decides on the stream, whose KeyFunc has answered id and err. It returns
// the refusal, after ending the stream's context.
func (s *serverStream) admit(id string, err error) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return errEnded
	}
	s.deciding = done
	s.mu.Unlock()
	defer close(done)

	lock, refused := s.guard.admit(s.ctx, s.call.FullMethod(), id, err)
	if refused != nil {
		refusal := s.guard.refuse(s.ctx, refused, s.SetTrailer)
		s.verdict.Store(&streamVerdict{refusal: refusal}) // before the handler sees its context end
		s.ctx.cancel(refusal)
		return refusal
	}
	carried, unbind := s.ctx.carry(lock)
	s.verdict.Store(&streamVerdict{lock: lock, carried: carried, unbind: unbind})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded // end gives the lock back
	}
	return nil
}

// end ends the stream's context, then gives the lock back: also that of an
// admission that still runs in another goroutine, so that the key is free when
// the client learns how the call ended.
func (s *serverStream) end() {
	s.mu.Lock()
	s.ended = true
	deciding := s.deciding
	s.mu.Unlock()
	v := s.verdict.Load()
	if v == nil && deciding != nil {
		s.ctx.cancel(context.Canceled)
		<-deciding
		v = s.verdict.Load()
	}
	if v == nil || v.refusal != nil {
		s.ctx.cancel(context.Canceled)
		return
	}
	v.unbind()
	s.ctx.cancel(context.Canceled)
	_ = v.lock.Unlock() // a loss has ended the handler's context
}

// refusal is why the stream was refused, or nil.
func (s *serverStream) refusal() error {
	if v := s.verdict.Load(); v != nil {
		return v.refusal
	}
	return nil
}

// failed is why nothing may be received or sent any more, or nil.
func (v *streamVerdict) failed() error {
	if v.refusal != nil {
		return v.refusal
	}
	if v.carried && errors.Is(v.lock.Err(), sqllock.ErrLost) {
		return lostError{}
	}
	return nil
}

// lostError is how a stream's messages fail once its lock is lost.
type lostError struct{}

func (lostError) Error() string              { return sqllock.ErrLost.Error() }
func (lostError) Unwrap() error              { return sqllock.ErrLost }
func (lostError) GRPCStatus() *status.Status { return status.New(codes.Aborted, "the lock was lost") }
