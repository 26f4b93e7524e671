package connectmw_test

import (
	"context"
	"errors"
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
		c := dial(t, handlers(nothing, limited(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), connectmw.Field("value"))), i)
		_, err := c.client.CallClientStream(t.Context()).CloseAndReceive()
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "the stream ended before its first message") {
			t.Errorf("%s: %v", road.name, err)
		}
	}
}

// With the key in the first message a handler may not send before it receives.
// The Observer is told of that once. Then its context carries the lock. If the
// stream is rejected, its context ends, and the call ends with the rejection,
// whatever the handler returns.
func TestFirstMessage(t *testing.T) {
	for name, want := range map[string]connect.Code{"admitted": connect.CodeOutOfRange, "rejected": connect.CodeResourceExhausted} {
		for i, road := range roads {
			if !road.http2 {
				continue
			}
			var told atomic.Int32
			observer := ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
				if connect.CodeOf(e.Err) == connect.CodeFailedPrecondition {
					told.Add(1)
				}
			})
			var locks sqllock.Locker = sqllock.NewMemory()
			if name == "rejected" {
				locks = httptesting.Failing{Err: sqllock.ErrHeld}
			}
			h := connect.NewBidiStreamHandler(service+"Bidi", func(ctx context.Context, s *connect.BidiStream[message, message]) error {
				for range 2 {
					if err := s.Send(wrapperspb.String("early")); connect.CodeOf(err) != connect.CodeFailedPrecondition {
						t.Errorf("%s, %s: Send before Receive: %v", name, road.name, err)
					}
				}
				_, err := s.Receive()
				if _, locked := sqllock.FromContext(ctx); (err == nil) != (name == "admitted") || locked != (err == nil) || (ctx.Err() == nil) != locked {
					t.Errorf("%s, %s: Receive: %v, with a lock: %v, the context: %v", name, road.name, err, locked, ctx.Err())
				}
				return connect.NewError(connect.CodeOutOfRange, errors.New("its own"))
			}, limited(ratelimit.OneAtATime(locks, namespace, observer), connectmw.Field("value")))
			if err := kinds[3].call(t.Context(), dial(t, h, i), alice); connect.CodeOf(err) != want || told.Load() != 1 {
				t.Errorf("%s, %s: %v, want %v; the Observer was told %d times", name, road.name, err, want, told.Load())
			}
		}
	}
}
