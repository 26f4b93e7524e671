package connectmw_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A stream whose lock is lost neither sends nor receives. So a handler that
// does not watch its context stops, too. The call ends with aborted, although
// the handler returns the end of its context as connect-go has it.
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
					return connect.NewError(connect.CodeCanceled, ctx.Err())
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
