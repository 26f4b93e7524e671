package connectmw

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A stream is a stream behind the interceptor.
type stream struct {
	connect.StreamingHandlerConn
	stream      *rpclimit.Stream
	interceptor *Interceptor
	call        Call
	asked       answer // at the start, without a message
}

const (
	earlyText = "connectmw: Send before the first message was received: the stream has no lock yet"
	endedText = "connectmw: the handler has returned"
)

func newStream(ctx context.Context, i *Interceptor, conn connect.StreamingHandlerConn) *stream {
	s := &stream{
		StreamingHandlerConn: conn,
		interceptor:          i,
		call:                 Call{Spec: conn.Spec(), Peer: conn.Peer(), Header: conn.RequestHeader()},
	}
	s.stream = rpclimit.NewStream(ctx, rpclimit.StreamCall{
		Admit:      s.admitMessage,
		SendsEarly: s.sendsEarly,
		// Each stream has errors of its own: a *connect.Error may be changed.
		Ended: connect.NewError(connect.CodeCanceled, errors.New(endedText)),
		Lost:  connect.NewError(connect.CodeAborted, lostError{}),
	})
	return s
}

// Receive receives a message. With the first message of an undecided stream it
// acquires the lock.
func (s *stream) Receive(m any) error { return s.stream.Receive(m, s.StreamingHandlerConn.Receive) }

// Send sends a message of a stream that is admitted.
func (s *stream) Send(m any) error { return s.stream.Send(m, s.StreamingHandlerConn.Send) }

// admitMessage admits the stream with its first message, or with nil if there
// is none.
func (s *stream) admitMessage(ctx context.Context, m any) (sqllock.Locks, error) {
	if m == nil {
		return s.interceptor.admit(ctx, s.call, answer{err: errNoMessage})
	}
	call := s.call
	call.Message = m
	return s.interceptor.admit(ctx, call, s.interceptor.ask(ctx, call))
}

// sendsEarly returns the error of a message that is sent while the stream is
// undecided. It is nil in a dry run.
func (s *stream) sendsEarly(ctx context.Context) error {
	early := connect.NewError(connect.CodeFailedPrecondition, errors.New(earlyText))
	return s.interceptor.level.limiter.Refuse(ctx, early)
}

// A lostError is in the error of messages on a stream whose lock is lost.
type lostError struct{}

func (lostError) Error() string { return "the lock was lost" }
func (lostError) Unwrap() error { return sqllock.ErrLost }
