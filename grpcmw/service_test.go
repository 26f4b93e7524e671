package grpcmw_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

const namespace sqllock.Namespace = "test"

// secret is the key of most tests. Nothing that a client gets holds it.
const secret = "ada-4711"

type (
	work         = func(context.Context) error
	duplexServer = pb.TestService_FullDuplexCallServer
)

func nothing(context.Context) error { return nil }

// A service does its work in a unary call, and in a stream once it has received
// the first message.
type service struct {
	pb.UnimplementedTestServiceServer
	work   work
	duplex func(duplexServer) error // in place of work, if set
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.work(ctx)
}

func (s *service) FullDuplexCall(stream duplexServer) error {
	if s.duplex != nil {
		return s.duplex(stream)
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return errors.Join(s.work(stream.Context()), stream.Send(&pb.StreamingOutputCallResponse{}))
}

// A road is a kind of call, with the interceptors in front of it: how many
// levels there are, and where the key is.
type road struct {
	name   string
	stream bool
	levels int
	key    grpcmw.KeyFunc
}

var roads = []road{
	{"unary, key in the metadata", false, 1, grpcmw.Metadata("user-bin")},
	{"unary, three levels, key in the message", false, 3, grpcmw.Field("response_status.message")},
	{"stream, key in the first message", true, 1, grpcmw.Field("response_status.message")},
	{"stream, three levels, key in the metadata", true, 3, grpcmw.Metadata("user-bin")},
	{"stream, three levels, key in the first message", true, 3, grpcmw.Field("response_status.message")},
}

// each runs f for each of the roads.
func each(t *testing.T, f func(t *testing.T, r road)) {
	for _, r := range roads {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			f(t, r)
		})
	}
}

// over returns the levels of r for l. Of three levels the middle one is l's. The
// others have room for the calls of any test.
func (r road) over(l *ratelimit.Limiter, policy ...ratelimit.Option) []grpcmw.Level {
	middle := grpcmw.Level{Limiter: l, Key: r.key}
	if r.levels == 1 {
		return []grpcmw.Level{middle}
	}
	locks := sqllock.NewMemory()
	return []grpcmw.Level{
		{Limiter: ratelimit.AtMost(7, locks, "all", policy...), Key: constant("everybody")},
		middle,
		{Limiter: ratelimit.AtMost(5, locks, "tenant", policy...), Key: constant("acme")},
	}
}

// call makes a call with key in its metadata and in its first message, and waits
// for its end.
func (r road) call(ctx context.Context, client pb.TestServiceClient, key string, opts ...grpc.CallOption) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "user-bin", key)
	if !r.stream {
		_, err := client.UnaryCall(ctx, &pb.SimpleRequest{ResponseStatus: named(key)}, opts...)
		return err
	}
	stream, err := client.FullDuplexCall(ctx, opts...)
	if err != nil {
		return err
	}
	_ = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: named(key)}) // Recv says how the call ended
	_ = stream.CloseSend()
	return drain(stream)
}

func named(key string) *pb.EchoStatus { return &pb.EchoStatus{Message: key} }

// drain receives to the end, and returns the error. It is nil for io.EOF.
func drain(stream pb.TestService_FullDuplexCallClient) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return ignoreEOF(err)
		}
	}
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// limited is the server option that puts both interceptors of levels in front.
func limited(levels []grpcmw.Level, opts ...grpcmw.Option) []grpc.ServerOption {
	unary, stream := grpcmw.UnaryStackInterceptor(levels, opts...), grpcmw.StreamStackInterceptor(levels, opts...)
	if len(levels) == 1 {
		unary = grpcmw.UnaryServerInterceptor(levels[0].Limiter, levels[0].Key, opts...)
		stream = grpcmw.StreamServerInterceptor(levels[0].Limiter, levels[0].Key, opts...)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream)}
}

// serve starts a server for s on a socket, and stops it after the test.
func serve(t testing.TB, s *service, opts ...grpc.ServerOption) (server *grpc.Server, address string) {
	t.Helper()
	server = grpc.NewServer(opts...)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server, listener.Addr().String()
}

// dial makes a connection that is closed after the test.
func dial(t testing.TB, address string, opts ...grpc.DialOption) pb.TestServiceClient {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewTestServiceClient(conn)
}

// start is serve and dial.
func start(t testing.TB, s *service, opts ...grpc.ServerOption) pb.TestServiceClient {
	t.Helper()
	_, address := serve(t, s, opts...)
	return dial(t, address)
}

// calls are a unary call and a stream, without a server, with interceptors of
// levels in front of work, which begins with the first message.
var calls = map[string]func(ctx context.Context, levels []grpcmw.Level, w work, opts ...grpcmw.Option) error{
	"unary": func(ctx context.Context, levels []grpcmw.Level, w work, opts ...grpcmw.Option) error {
		req := &pb.StreamingOutputCallRequest{ResponseStatus: named(secret)}
		return call(ctx, grpcmw.UnaryStackInterceptor(levels, opts...), "/test.Service/Call", req,
			func(ctx context.Context, _ any) (any, error) { return nil, w(ctx) })
	},
	"stream": func(ctx context.Context, levels []grpcmw.Level, w work, opts ...grpcmw.Option) error {
		return grpcmw.StreamStackInterceptor(levels, opts...)(nil, streamOf{oneMessage{secret}, ctx}, streamInfo, func(_ any, stream grpc.ServerStream) error {
			if err := stream.RecvMsg(&pb.StreamingOutputCallRequest{}); err != nil {
				return err
			}
			return w(stream.Context())
		})
	},
}

var streamInfo = &grpc.StreamServerInfo{FullMethod: "/test.Service/Stream", IsClientStream: true}

// one is a single limit as levels.
func one(l *ratelimit.Limiter, key grpcmw.KeyFunc) []grpcmw.Level {
	return []grpcmw.Level{{Limiter: l, Key: key}}
}

// three are the namespaces of threeLevels.
var three = []sqllock.Namespace{"everybody", "tenant", "user"}

// threeLevels returns levels over locks, of which the one at index at has the
// policy.
func threeLevels(locks sqllock.Locker, at int, policy ...ratelimit.Option) (levels []grpcmw.Level) {
	for i, ns := range three {
		var own []ratelimit.Option
		if i == at {
			own = policy
		}
		levels = append(levels, grpcmw.Level{Limiter: ratelimit.OneAtATime(locks, ns, own...), Key: constant(secret)})
	}
	return levels
}

// wantPlacesFree reports places of levels that are still taken.
func wantPlacesFree(t *testing.T, levels []grpcmw.Level) {
	t.Helper()
	for _, level := range levels {
		if n := level.Limiter.Stats().Active; n > 0 {
			t.Errorf("%d places of %s are left", n, level.Limiter.Namespace())
		}
	}
}

// hold acquires the lock of key until the test ends or release is called.
func hold(t testing.TB, locks sqllock.Locker, key string) (release func()) {
	t.Helper()
	lock, err := locks.TryLock(t.Context(), namespace.Key(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	return func() { _ = lock.Unlock() }
}

// isFree reports whether the lock of key can be acquired.
func isFree(locks sqllock.Locker, key string) bool {
	lock, err := locks.TryLock(context.Background(), namespace.Key(key))
	return err == nil && lock.Unlock() == nil
}
