package connectmw_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/grpcmw/connectmw"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// end ends the lock of ctx as its loss does, or its limiter.
func end(ctx context.Context, cause error) error {
	lock, ok := sqllock.FromContext(ctx)
	if !ok {
		return errors.New("there is no lock")
	}
	lock.Cancel(cause)
	<-ctx.Done()
	return nil
}

// A call whose lock ends while its handler runs ends with aborted, or with
// deadline_exceeded, if the handler returns what ended it. Its own error and its
// response stay.
func TestInterruptions(t *testing.T) {
	own := connect.NewError(connect.CodeNotFound, errors.New("own"))
	tests := []struct {
		name   string
		cause  error
		result func(context.Context) error
		code   connect.Code // 0: the response stays
		reason string
	}{
		{"lost, the context's error", sqllock.ErrLost, func(ctx context.Context) error { return ctx.Err() }, connect.CodeAborted, "LOCK_LOST"},
		{"lost, as connect has it", sqllock.ErrLost, func(ctx context.Context) error { return connect.NewError(connect.CodeCanceled, ctx.Err()) }, connect.CodeAborted, "LOCK_LOST"},
		{"closed", sqllock.ErrClosed, func(ctx context.Context) error { return ctx.Err() }, connect.CodeAborted, "LOCK_LOST"},
		{"lost, its own error", sqllock.ErrLost, func(context.Context) error { return own }, connect.CodeNotFound, ""},
		{"lost, but there is a response", sqllock.ErrLost, func(context.Context) error { return nil }, 0, ""},
		{"too long", ratelimit.ErrMaxHold, func(ctx context.Context) error { return ctx.Err() }, connect.CodeDeadlineExceeded, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, road int, call call, key connectmw.KeyFunc) {
				w := func(ctx context.Context) error {
					if err := end(ctx, tt.cause); err != nil {
						return err
					}
					return tt.result(ctx)
				}
				c := dial(t, handlers(w, limited(ratelimit.OneAtATime(sqllock.NewMemory(), namespace), key)), road)
				err := call(t.Context(), c, alice)
				d, _ := read(t, err)
				code := connect.CodeOf(err)
				if err == nil {
					code = 0
				}
				if code != tt.code || d.reason != tt.reason || (d.retry > 0) != (tt.reason != "") {
					t.Errorf("%v with %+v, want %v and %q", err, d, tt.code, tt.reason)
				}
			})
		})
	}
}

// A stream whose lock is lost neither sends nor receives. So a handler that
// does not watch its context stops, too.
func TestLossEndsMessages(t *testing.T) {
	for i, road := range roads {
		if !road.http2 {
			continue
		}
		for _, source := range sources {
			t.Run(road.name+"/"+source.name, func(t *testing.T) {
				lost, errs := make(chan struct{}), make(chan error, 2)
				locks := sqllock.NewMemory()
				h := connect.NewBidiStreamHandler(service+"Bidi", func(ctx context.Context, s *connect.BidiStream[message, message]) error {
					if _, err := s.Receive(); err != nil {
						return err
					}
					locks.Lose()
					<-ctx.Done()
					close(lost)
					errs <- s.Send(wrapperspb.String("too late"))
					_, err := s.Receive()
					errs <- err
					return err
				}, limited(ratelimit.OneAtATime(locks, namespace), source.key))
				stream := dial(t, h, i).bidi.CallBidiStream(t.Context())
				defer stream.CloseResponse()
				stream.RequestHeader().Set("User", alice)
				_ = stream.Send(wrapperspb.String(alice))
				httptesting.Receive(t, lost, "the loss")
				_ = stream.Send(wrapperspb.String("not to be worked on"))
				_ = stream.CloseRequest()
				for _, what := range []string{"Send", "Receive"} {
					if err := httptesting.Receive(t, errs, what); !errors.Is(err, sqllock.ErrLost) || connect.CodeOf(err) != connect.CodeAborted {
						t.Errorf("%s after the loss: %v", what, err)
					}
				}
				_, err := stream.Receive()
				if d, _ := read(t, err); errors.Is(err, io.EOF) || connect.CodeOf(err) != connect.CodeAborted || d.reason != "LOCK_LOST" {
					t.Errorf("the call ended with %v, %+v", err, d)
				}
			})
		}
	}
}
