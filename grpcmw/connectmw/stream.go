package connectmw

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/internal/rpclimit"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A stream is a stream behind the interceptor.
type stream struct {
	connect.StreamingHandlerConn
	stream      *rpclimit.Stream
	around      context.Context // of the call, outside of the locks
	interceptor *Interceptor
	call        Call

	id      identification       // used by begin, and then by the decision
	pending []*ratelimit.Limiter // of an undecided stream: what it needs; set by begin
}

const (
	earlyText = "connectmw: Send before the first message was received: the stream has no lock yet"
	endedText = "connectmw: the handler has returned"
)

func newStream(ctx context.Context, i *Interceptor, conn connect.StreamingHandlerConn) *stream {
	s := &stream{
		StreamingHandlerConn: conn,
		around:               ctx,
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
// acquires the locks.
func (s *stream) Receive(m any) error { return s.stream.Receive(m, s.StreamingHandlerConn.Receive) }

// Send sends a message of a stream that is admitted.
func (s *stream) Send(m any) error { return s.stream.Send(m, s.StreamingHandlerConn.Send) }

// begin decides on a stream that starts, unless a KeyFunc needs the first
// message. It returns the rejection.
func (s *stream) begin() error {
	needsMessage, rejection := s.interceptor.identify(s.around, s.call, &s.id)
	if !needsMessage {
		return s.stream.Decide(func(ctx context.Context) (places.Held, error) { return s.admit(ctx, rejection) })
	}
	s.pending = s.id.wanted.Limiters()
	for _, level := range s.interceptor.levels[s.id.next:] {
		s.pending = append(s.pending, level.Limiter)
	}
	return nil
}

// admitMessage admits the stream with its first message, or with nil if there
// is none.
func (s *stream) admitMessage(ctx context.Context, m any) (places.Held, error) {
	if m == nil {
		return s.admit(ctx, s.identifyWithout(ctx))
	}
	call := s.call
	call.Message = m
	_, rejection := s.interceptor.identify(ctx, call, &s.id)
	return s.admit(ctx, rejection)
}

// identifyWithout identifies a stream that has ended before its first message.
func (s *stream) identifyWithout(ctx context.Context) error {
	for s.id.next < len(s.interceptor.levels) {
		needsMessage, rejection := s.interceptor.identify(ctx, s.call, &s.id)
		if needsMessage {
			rejection = s.interceptor.identified(ctx, s.call, &s.id, "", errNoMessage)
			s.id.next++
		}
		if rejection != nil {
			return rejection
		}
	}
	return nil
}

// admit admits the stream, which is identified, or rejected by that.
func (s *stream) admit(ctx context.Context, rejection error) (places.Held, error) {
	if rejection != nil {
		return places.Held{}, rejection
	}
	return s.interceptor.admit(ctx, s.call, &s.id.wanted)
}

// sendsEarly returns the error of a message that is sent while the stream is
// undecided. It is nil if all levels are in a dry run. The Observer of the first
// level that is not gets it.
func (s *stream) sendsEarly(ctx context.Context) error {
	early := connect.NewError(connect.CodeFailedPrecondition, errors.New(earlyText))
	for _, l := range s.pending {
		if err := inside.Refuse(ctx, l, early); err != nil {
			return err
		}
	}
	return nil
}

// interruption returns how the stream ends whose handler has returned err, as
// that of an Interceptor.
func (s *stream) interruption(err error) error {
	held, decided := s.stream.Held()
	if !decided { // it has no lock, and a decision may still use s.id
		return nil
	}
	return s.interceptor.interruption(s.around, s.stream.Context(), &s.id.wanted, held, err)
}

// A lostError is in the error of messages on a stream whose lock is lost.
type lostError struct{}

func (lostError) Error() string { return "the lock was lost" }
func (lostError) Unwrap() error { return sqllock.ErrLost }
