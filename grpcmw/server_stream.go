package grpcmw

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A serverStream is a stream behind the interceptor.
type serverStream struct {
	grpc.ServerStream
	*rpclimit.Stream
	guard *guard
	call  interceptors.CallMeta
}

var (
	errEarlySend = status.Error(codes.FailedPrecondition, "grpcmw: SendMsg before the first message was received: the stream has no lock yet")
	errEnded     = status.Error(codes.Canceled, "grpcmw: the handler has returned")
)

func newStream(g *guard, ss grpc.ServerStream, call interceptors.CallMeta) *serverStream {
	s := &serverStream{ServerStream: ss, guard: g, call: call}
	s.Stream = rpclimit.NewStream(ss.Context(), rpclimit.StreamCall{
		Admit:      s.admitMessage,
		SendsEarly: func(ctx context.Context) error { return g.limiter.Refuse(ctx, errEarlySend) },
		Ended:      errEnded,
		Lost:       lostError{},
	})
	return s
}

// Context returns the same context before and after the first message.
func (s *serverStream) Context() context.Context { return s.Stream.Context() }

// RecvMsg receives a message. With the first message of an undecided stream it
// acquires the lock.
func (s *serverStream) RecvMsg(m any) error { return s.Receive(m, s.ServerStream.RecvMsg) }

// SendMsg sends a message of a stream that is admitted.
func (s *serverStream) SendMsg(m any) error { return s.Send(m, s.ServerStream.SendMsg) }

// admitMessage admits the stream with its first message, or with nil if there
// is none.
func (s *serverStream) admitMessage(ctx context.Context, m any) (sqllock.Locks, error) {
	if m == nil {
		return s.admit(ctx, "", errNoMessage)
	}
	call := s.call
	call.ReqOrNil = m
	id, err := s.guard.key(ctx, call)
	return s.admit(ctx, id, err)
}

// admit admits the stream, whose KeyFunc has returned id and err.
func (s *serverStream) admit(ctx context.Context, id string, err error) (sqllock.Locks, error) {
	lock, rejected := s.guard.admit(ctx, s.call.FullMethod(), id, err)
	if rejected != nil {
		return nil, s.guard.reject(ctx, rejected, s.SetTrailer)
	}
	return sqllock.Locks{lock}, nil
}

// A lostError is the error of messages on a stream whose lock is lost.
type lostError struct{}

func (lostError) Error() string              { return sqllock.ErrLost.Error() }
func (lostError) Unwrap() error              { return sqllock.ErrLost }
func (lostError) GRPCStatus() *status.Status { return status.New(codes.Aborted, "the lock was lost") }
