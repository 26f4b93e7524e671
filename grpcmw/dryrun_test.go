package grpcmw_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// losing is a Memory that tells of each lock it has granted.
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

// The loss of a lock ends a call's context, but not in a dry run, which must not
// harm live traffic.
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
