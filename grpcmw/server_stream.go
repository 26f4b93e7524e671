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

	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A serverStream is a stream behind the interceptor.
//
// Invariant: it is undecided first, and then admitted or rejected, which does
// not change any more.
//
// One goroutine may be in RecvMsg while another is in SendMsg, and a third,
// that of the handler, returns.
type serverStream struct {
	grpc.ServerStream
	guard  *guard
	method string
	call   interceptors.CallMeta // of method
	ctx    *streamContext

	id      identification       // used by begin, and then by RecvMsg
	pending []*ratelimit.Limiter // of an undecided stream: what it needs; set by begin

	admission atomic.Pointer[admission] // nil while undecided

	mu       sync.Mutex    // protects ended and deciding; never held while calling out
	ended    bool          // the handler has returned
	deciding chan struct{} // of the admission that has begun, closed at its end; nil if none has

	early    sync.Once // decides on earlyErr
	earlyErr error     // of SendMsg while undecided
}

// An admission is the locks of a stream, or the reason why there are none. A
// lock may be nil in a dry run, or by WithFailOpen.
type admission struct {
	held      places.Held
	carried   places.Held // what the stream's context carries: no lock of a dry run
	unbind    func()      // removes held from the stream's context
	rejection error
}

var (
	errEarlySend = status.Error(codes.FailedPrecondition, "grpcmw: SendMsg before the first message was received: the stream has no lock yet")
	errEnded     = status.Error(codes.Canceled, "grpcmw: the handler has returned")
)

func newStream(g *guard, ss grpc.ServerStream, info *grpc.StreamServerInfo) *serverStream {
	return &serverStream{
		ServerStream: ss, guard: g, method: info.FullMethod,
		call: interceptors.NewServerCallMeta(info.FullMethod, info, nil), ctx: newStreamContext(ss.Context()),
	}
}

// Context returns the same context before and after the first message.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg receives a message. With the first message of an undecided stream it
// acquires the locks.
func (s *serverStream) RecvMsg(m any) error {
	if a := s.admission.Load(); a != nil {
		if err := a.failed(); err != nil {
			return err
		}
		if err := s.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		return a.failed() // it may have been a long wait
	}
	switch err := s.ServerStream.RecvMsg(m); {
	case err == nil:
		call := s.call
		call.ReqOrNil = m
		_, rejected := s.guard.identify(s.ctx, s.method, call, &s.id)
		return s.admit(rejected)
	case errors.Is(err, io.EOF): // no message will come, and so no key
		if rejection := s.admit(s.identifyWithout()); rejection != nil {
			return rejection
		}
		return err
	default:
		return err
	}
}

// begin decides on a stream that starts, unless a KeyFunc needs the first
// message. It returns the rejection.
func (s *serverStream) begin() error {
	needsMessage, rejected := s.guard.identify(s.ServerStream.Context(), s.method, s.call, &s.id)
	if !needsMessage {
		return s.admit(rejected)
	}
	s.pending = s.id.wanted.Limiters()
	for _, level := range s.guard.levels[s.id.next:] {
		s.pending = append(s.pending, level.Limiter)
	}
	return nil
}

// identifyWithout identifies a stream that has ended before its first message.
func (s *serverStream) identifyWithout() *rejection {
	for s.id.next < len(s.guard.levels) {
		needsMessage, rejected := s.guard.identify(s.ctx, s.method, s.call, &s.id)
		if needsMessage {
			rejected = s.guard.identified(s.ctx, s.method, &s.id, "", errNoMessage)
			s.id.next++
		}
		if rejected != nil {
			return rejected
		}
	}
	return nil
}

// SendMsg sends a message of a stream that is admitted.
func (s *serverStream) SendMsg(m any) error {
	a := s.admission.Load()
	if a == nil {
		if err := s.sendsEarly(); err != nil {
			return err
		}
		return s.ServerStream.SendMsg(m)
	}
	if err := a.failed(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// sendsEarly returns the error of a message that is sent while the stream is
// undecided. It is nil if all levels are in a dry run. The Observer of the first
// level that is not gets it once.
func (s *serverStream) sendsEarly() error {
	s.early.Do(func() {
		for _, l := range s.pending {
			if s.earlyErr = l.Refuse(s.ctx, errEarlySend); s.earlyErr != nil {
				return
			}
		}
	})
	return s.earlyErr
}

// admit decides on the stream, which is identified, or rejected by that. It
// returns the rejection, after it has ended the stream's context.
func (s *serverStream) admit(rejected *rejection) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return errEnded
	}
	s.deciding = done
	s.mu.Unlock()
	defer close(done)

	var held places.Held
	if rejected == nil {
		held, rejected = s.guard.admit(s.ctx, s.method, &s.id.wanted)
	}
	if rejected != nil {
		rejection := s.guard.reject(s.ctx, rejected, s.SetTrailer)
		s.admission.Store(&admission{rejection: rejection}) // before the handler sees its context end
		s.ctx.cancel(rejection)
		return rejection
	}
	carried, unbind := s.ctx.carry(held)
	s.admission.Store(&admission{held: held, carried: carried, unbind: unbind})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded // end gives the lock back
	}
	return nil
}

// end ends the stream's context, and then releases the locks. It waits for an
// admission that still runs in another goroutine, so that the key is free when
// the client learns how the call ended.
func (s *serverStream) end() {
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

// interruption returns how the stream ends whose handler has returned err, as
// that of a guard.
func (s *serverStream) interruption(err error) *rejection {
	a := s.admission.Load()
	if a == nil { // it has no lock, and RecvMsg may still use s.id
		return nil
	}
	return s.guard.interruption(s.ServerStream.Context(), s.ctx, &s.id.wanted, a.held, err)
}

// rejection returns why the stream was rejected, or nil.
func (s *serverStream) rejection() error {
	if a := s.admission.Load(); a != nil {
		return a.rejection
	}
	return nil
}

// failed returns why no more messages may be received or sent, or nil.
func (a *admission) failed() error {
	if a.rejection != nil {
		return a.rejection
	}
	if a.carried.Lost() {
		return lostError{}
	}
	return nil
}

// A lostError is the error of messages on a stream whose lock is lost.
type lostError struct{}

func (lostError) Error() string              { return sqllock.ErrLost.Error() }
func (lostError) Unwrap() error              { return sqllock.ErrLost }
func (lostError) GRPCStatus() *status.Status { return status.New(codes.Aborted, "the lock was lost") }
