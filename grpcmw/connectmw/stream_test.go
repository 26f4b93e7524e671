package connectmw_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A stream that ends before its first message has no key.
func TestStreamWithoutAMessage(t *testing.T) {
	for i, road := range roads {
		t.Run(road.name, func(t *testing.T) {
			c := dial(t, handlers(nothing, limited(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), connectmw.Field("value"))), i)
			_, err := c.client.CallClientStream(t.Context()).CloseAndReceive()
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "the stream ended before its first message") {
				t.Error(err)
			}
		})
	}
}

// A handler may not send before the stream is decided, except in a dry run. Its
// context carries the lock from the first message on.
func TestSendBeforeTheFirstMessage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy []ratelimit.Option
		want   connect.Code // 0: it may send
	}{
		{"in earnest", nil, connect.CodeFailedPrecondition},
		{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, 0},
	} {
		for i, road := range roads {
			if !road.http2 {
				continue
			}
			t.Run(tt.name+"/"+road.name, func(t *testing.T) {
				var told atomic.Int32
				observer := ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
					if connect.CodeOf(e.Err) == connect.CodeFailedPrecondition {
						told.Add(1)
					}
				})
				h := connect.NewBidiStreamHandler(service+"Bidi", func(ctx context.Context, s *connect.BidiStream[message, message]) error {
					for range 2 {
						if err := s.Send(wrapperspb.String("early")); (err == nil) != (tt.want == 0) || err != nil && connect.CodeOf(err) != tt.want {
							return errors.New("the early message")
						}
					}
					if _, ok := sqllock.FromContext(ctx); ok {
						return errors.New("a lock before the first message")
					}
					if _, err := s.Receive(); err != nil {
						return err
					}
					if lock, ok := sqllock.FromContext(ctx); ok == (tt.want == 0) || ok && lock.Err() != nil {
						return errors.New("the lock after the first message")
					}
					return s.Send(wrapperspb.String("done"))
				}, limited(ratelimit.OneAtATime(sqllock.NewMemory(), namespace, append(tt.policy, observer)...), connectmw.Field("value")))
				if err := kinds[3].call(t.Context(), dial(t, h, i), alice); err != nil {
					t.Error(err)
				}
				if told.Load() != 1 {
					t.Errorf("the Observer was told %d times", told.Load())
				}
			})
		}
	}
}

// A stream that is rejected by its first message ends with that, whatever the
// handler returns. Its context ends.
func TestRejectionStays(t *testing.T) {
	ended := make(chan error, 1)
	limit := limited(ratelimit.OneAtATime(httptesting.Failing{Err: sqllock.ErrHeld}, namespace), connectmw.Field("value"))
	mux := http.NewServeMux()
	mux.Handle(service+"Client", connect.NewClientStreamHandler(service+"Client", func(ctx context.Context, s *connect.ClientStream[message]) (*connect.Response[message], error) {
		s.Receive()
		ended <- ctx.Err()
		return connect.NewResponse(wrapperspb.String("done")), nil
	}, limit))
	mux.Handle(service+"Bidi", connect.NewBidiStreamHandler(service+"Bidi", func(ctx context.Context, s *connect.BidiStream[message, message]) error {
		_, _ = s.Receive()
		ended <- ctx.Err()
		return errors.New("another error")
	}, limit))
	for i, road := range roads {
		c := dial(t, mux, i)
		for _, kind := range kinds {
			if kind.name != "client" && (kind.name != "bidi" || !road.http2) {
				continue // the others do not receive in the handler, or need HTTP/2
			}
			if err := kind.call(t.Context(), c, alice); connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Errorf("%s, %s: %v", road.name, kind.name, err)
			}
			if httptesting.Receive(t, ended, "the handler") == nil {
				t.Errorf("%s, %s: the context of a rejected stream has not ended", road.name, kind.name)
			}
		}
	}
}
