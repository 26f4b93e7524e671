package grpcmw

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A serverStream is a stream behind the interceptor.
type serverStream struct {
	grpc.ServerStream
	*rpclimit.Stream
	guard  *guard
	method string
	call   interceptors.CallMeta // of method

	id      identification       // used by begin, and then by the decision
	pending []*ratelimit.Limiter // of an undecided stream: what it needs; set by begin
}

var (
	errEarlySend = status.Error(codes.FailedPrecondition, "grpcmw: SendMsg before the first message was received: the stream has no lock yet")
	errEnded     = status.Error(codes.Canceled, "grpcmw: the handler has returned")
)

func newStream(g *guard, ss grpc.ServerStream, info *grpc.StreamServerInfo) *serverStream {
	s := &serverStream{
		ServerStream: ss, guard: g, method: info.FullMethod,
		call: interceptors.NewServerCallMeta(info.FullMethod, info, nil),
	}
	s.Stream = rpclimit.NewStream(ss.Context(), rpclimit.StreamCall{
		Admit:      s.admitMessage,
		SendsEarly: s.sendsEarly,
		Ended:      errEnded,
		Lost:       lostError{},
	})
	return s
}

// Context returns the same context before and after the first message.
func (s *serverStream) Context() context.Context { return s.Stream.Context() }

// RecvMsg receives a message. With the first message of an undecided stream it
// acquires the locks.
func (s *serverStream) RecvMsg(m any) error { return s.Receive(m, s.ServerStream.RecvMsg) }

// SendMsg sends a message of a stream that is admitted.
func (s *serverStream) SendMsg(m any) error { return s.Send(m, s.ServerStream.SendMsg) }

// begin decides on a stream that starts, unless a KeyFunc needs the first
// message. It returns the rejection.
func (s *serverStream) begin() error {
	needsMessage, rejected := s.guard.identify(s.ServerStream.Context(), s.method, s.call, &s.id)
	if !needsMessage {
		return s.Decide(func(ctx context.Context) (places.Held, error) { return s.admit(ctx, rejected) })
	}
	s.pending = s.id.wanted.Limiters()
	for _, level := range s.guard.levels[s.id.next:] {
		s.pending = append(s.pending, level.Limiter)
	}
	return nil
}

// admitMessage admits the stream with its first message, or with nil if there
// is none.
func (s *serverStream) admitMessage(ctx context.Context, m any) (places.Held, error) {
	if m == nil {
		return s.admit(ctx, s.identifyWithout(ctx))
	}
	call := s.call
	call.ReqOrNil = m
	_, rejected := s.guard.identify(ctx, s.method, call, &s.id)
	return s.admit(ctx, rejected)
}

// identifyWithout identifies a stream that has ended before its first message.
func (s *serverStream) identifyWithout(ctx context.Context) *rejection {
	for s.id.next < len(s.guard.levels) {
		needsMessage, rejected := s.guard.identify(ctx, s.method, s.call, &s.id)
		if needsMessage {
			rejected = s.guard.identified(ctx, s.method, &s.id, "", errNoMessage)
			s.id.next++
		}
		if rejected != nil {
			return rejected
		}
	}
	return nil
}

// admit admits the stream, which is identified, or rejected by that.
func (s *serverStream) admit(ctx context.Context, rejected *rejection) (held places.Held, err error) {
	if rejected == nil {
		held, rejected = s.guard.admit(ctx, s.method, &s.id.wanted)
	}
	if rejected != nil {
		return places.Held{}, s.guard.reject(ctx, rejected, s.SetTrailer)
	}
	return held, nil
}

// sendsEarly returns the error of a message that is sent while the stream is
// undecided. It is nil if all levels are in a dry run. The Observer of the first
// level that is not gets it.
func (s *serverStream) sendsEarly(ctx context.Context) error {
	for _, l := range s.pending {
		if err := inside.Refuse(ctx, l, errEarlySend); err != nil {
			return err
		}
	}
	return nil
}

// interruption returns how the stream ends whose handler has returned err, as
// that of a guard.
func (s *serverStream) interruption(err error) *rejection {
	held, decided := s.Held()
	if !decided { // it has no lock, and a decision may still use s.id
		return nil
	}
	return s.guard.interruption(s.ServerStream.Context(), s.Context(), &s.id.wanted, held, err)
}

// A lostError is the error of messages on a stream whose lock is lost.
type lostError struct{}

func (lostError) Error() string              { return sqllock.ErrLost.Error() }
func (lostError) Unwrap() error              { return sqllock.ErrLost }
func (lostError) GRPCStatus() *status.Status { return status.New(codes.Aborted, "the lock was lost") }
