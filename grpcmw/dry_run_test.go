package grpcmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// losing is a Memory that reports each lock that it has granted.
type losing struct {
	*sqllock.Memory
	taken chan *sqllock.Lock
}

func (l losing) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	lock, err := l.Memory.TryLock(ctx, key)
	l.taken <- lock
	return lock, err
}

// quietStream is a stream that only has a context.
type quietStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s quietStream) Context() context.Context { return s.ctx }
func (s quietStream) SetTrailer(metadata.MD)   {}

// The loss of a lock ends a call's context, but not in a dry run, which must
// not harm live traffic.
func TestLossInDryRun(t *testing.T) {
	always := grpcmw.FromContext(func(context.Context) (string, bool) { return "ada", true })
	for _, tt := range []struct {
		name   string
		policy []ratelimit.Option
		ends   bool
	}{
		{"in earnest", nil, true},
		{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, false},
	} {
		locks := losing{sqllock.NewMemory(), make(chan *sqllock.Lock, 1)}
		limit := ratelimit.OneAtATime(locks, namespace, tt.policy...)
		work := func(ctx context.Context) {
			(<-locks.taken).Cancel(sqllock.ErrLost)
			if ended := ctx.Err() != nil; ended != tt.ends {
				t.Errorf("%s: the call's context has ended: %v, want %v", tt.name, ended, tt.ends)
			}
		}
		unary := grpcmw.UnaryServerInterceptor(limit, always)
		if _, err := unary(t.Context(), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
			work(ctx)
			return nil, nil
		}); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		stream := grpcmw.StreamServerInterceptor(limit, always)
		if err := stream(nil, quietStream{ctx: t.Context()}, &grpc.StreamServerInfo{}, func(_ any, stream grpc.ServerStream) error {
			work(stream.Context())
			return nil
		}); err != nil {
			t.Errorf("%s: stream: %v", tt.name, err)
		}
	}
}

// The loss does not fail a stream's messages in a dry run either.
func TestLossInDryRunKeepsMessages(t *testing.T) {
	for _, source := range sources {
		for _, tt := range []struct {
			name   string
			policy []ratelimit.Option
			code   codes.Code
		}{
			{"in earnest", nil, codes.Aborted},
			{"in earnest, told to stop before", []ratelimit.Option{ratelimit.WithMaxHold(1)}, codes.Aborted},
			{"dry run", []ratelimit.Option{ratelimit.WithDryRun()}, codes.OK},
		} {
			t.Run(source.name+"/"+tt.name, func(t *testing.T) {
				session, lose := openSession(t, "pgx")
				lost := make(chan struct{})
				observed := ratelimit.WithObserver(func(_ context.Context, e ratelimit.Event) {
					if e.Result == ratelimit.Lost {
						close(lost)
					}
				})
				s := &service{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
					if _, err := stream.Recv(); err != nil {
						return err
					}
					lose()
					select {
					case <-lost:
					case <-time.After(patience):
						return errors.New("no loss")
					}
					if err := stream.Send(&pb.StreamingOutputCallResponse{}); status.Code(err) != tt.code {
						return status.Errorf(codes.Internal, "Send after the loss: %v", err)
					}
					_, err := stream.Recv()
					return err
				}}
				limit := ratelimit.OneAtATime(session, namespace, append(tt.policy, observed)...)
				client := start(t, s, limited(limit, source.key)...)
				stream, err := client.FullDuplexCall(as(t.Context(), "alice"))
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					_ = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: named("alice")})
				}
				if err := drain(stream); status.Code(err) != tt.code {
					t.Errorf("the call ended with %v, want %v", err, tt.code)
				}
			})
		}
	}
}

// A dry run inside of another interceptor does not hide that one's lock,
// whether the dry run has a lock of its own or not.
func TestDryRunInsideAnother(t *testing.T) {
	always := grpcmw.FromContext(func(context.Context) (string, bool) { return "ada", true })
	for name, inner := range map[string]sqllock.Locker{
		"free": sqllock.NewMemory(),
		"busy": broken{sqllock.ErrHeld},
	} {
		outer := ratelimit.OneAtATime(sqllock.NewMemory(), namespace)
		trial := ratelimit.OneAtATime(inner, "trial", ratelimit.WithDryRun())
		work := func(ctx context.Context) {
			lock, ok := sqllock.FromContext(ctx)
			if !ok || lock.Key() != namespace.Key("ada") || lock.Err() != nil {
				t.Errorf("%s: the lock in the context is %v, want that of the outer limit", name, lock.Key())
			}
			lock.Cancel(sqllock.ErrLost)
			wait(t, ctx.Done(), "the loss of the outer lock to show")
		}
		ran := 0
		if _, err := grpcmw.UnaryServerInterceptor(outer, always)(t.Context(), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, req any) (any, error) {
			return grpcmw.UnaryServerInterceptor(trial, always)(ctx, req, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
				ran++
				work(ctx)
				return nil, nil
			})
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := grpcmw.StreamServerInterceptor(outer, always)(nil, quietStream{ctx: t.Context()}, &grpc.StreamServerInfo{}, func(srv any, stream grpc.ServerStream) error {
			return grpcmw.StreamServerInterceptor(trial, always)(srv, stream, &grpc.StreamServerInfo{}, func(_ any, stream grpc.ServerStream) error {
				ran++
				work(stream.Context())
				return nil
			})
		}); err != nil {
			t.Errorf("%s: stream: %v", name, err)
		}
		if ran != 2 {
			t.Errorf("%s: %d handlers ran, want 2", name, ran)
		}
	}
}
