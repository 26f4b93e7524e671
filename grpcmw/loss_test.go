package grpcmw_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The loss of a connection to PostgreSQL ends the handler's context and the
// call, with a status that clients retry, for every kind of call and every
// driver. The next call gets a lock on a new connection.
func TestLossEndsHandler(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		session, db := dbtest.Session(t, driver, dsn), dbtest.Open(t, driver, dsn)
		for i, kind := range kinds {
			levels := stack{1 + 2*(i%2), sources[i%2].key}
			s := &service{work: func(ctx context.Context) error {
				if ctx.Err() != nil {
					return errors.New("ended before the loss")
				}
				httptesting.Terminate(t, db)
				httptesting.Receive(t, ctx.Done(), "the loss")
				if cause := context.Cause(ctx); !errors.Is(cause, sqllock.ErrLost) {
					t.Errorf("%s: cause %v", kind.name, cause)
				}
				return ctx.Err()
			}}
			client := start(t, s, levels.limited(session)...)
			err := kind.call(t.Context(), client, "alice")
			if got := status.Convert(err); got.Code() != codes.Aborted || len(got.Details()) != 2 {
				t.Errorf("%s: %v with %v, want ABORTED with ErrorInfo and RetryInfo", kind.name, err, got.Details())
			}
			s.work = nothing
			lockertest.Eventually(t, "a call on a new connection", func() bool {
				return kind.call(t.Context(), client, "alice") == nil
			})
		}
	})
}

// A stream whose lock is lost, that of any level, neither sends nor receives,
// also if the loss comes while RecvMsg waits. So a handler that does not watch
// its context stops, too. The trailer has no pushback. In a dry run the loss
// fails nothing.
func TestLossEndsMessages(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy []ratelimit.Option
		code   codes.Code
	}{
		{"in earnest", nil, codes.Aborted},
		{"in earnest, told to stop before", []ratelimit.Option{ratelimit.WithMaxHold(1)}, codes.Aborted},
		{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, codes.OK},
	} {
		for source, key := range map[string]grpcmw.KeyFunc{"at the start": constant("alice"), "first message": grpcmw.Field("response_status.message")} {
			for at, ns := range three {
				lost, message := sqllock.NewMemory(), new(pb.StreamingOutputCallRequest)
				client := &losing{locks: lost}
				levels := levelsWith(sqllock.NewMemory(), -1)
				levels[at] = grpcmw.Level{Limiter: ratelimit.OneAtATime(lost, ns, tt.policy...), Key: key}
				err := grpcmw.StreamStackInterceptor(levels, grpcmw.WithPushback(1))(nil, client, streamInfo, func(_ any, stream grpc.ServerStream) error {
					if err := stream.RecvMsg(message); err != nil {
						return err
					}
					waited, sent, received := stream.RecvMsg(message), stream.SendMsg(nil), stream.RecvMsg(message)
					for what, err := range map[string]error{"RecvMsg in the loss": waited, "SendMsg": sent, "RecvMsg": received} {
						if status.Code(err) != tt.code || err != nil && !errors.Is(err, sqllock.ErrLost) {
							t.Errorf("%s, %s, %s: %s after the loss: %v, want %v", tt.name, source, ns, what, err, tt.code)
						}
					}
					return received
				})
				if status.Code(err) != tt.code {
					t.Errorf("%s, %s, %s: the call ended with %v, want %v", tt.name, source, ns, err, tt.code)
				}
				if client.trailer != nil {
					t.Errorf("%s, %s, %s: trailer %v after what may have had effects", tt.name, source, ns, client.trailer)
				}
			}
		}
	}
}

// A losing stream loses its lock while its second message is received.
type losing struct {
	oneMessage
	locks    *sqllock.Memory
	received int
	trailer  metadata.MD
}

func (s *losing) SetTrailer(md metadata.MD) { s.trailer = md }

func (s *losing) RecvMsg(into any) error {
	if s.received++; s.received == 2 {
		s.locks.Lose()
	}
	return oneMessage{"alice"}.RecvMsg(into)
}
