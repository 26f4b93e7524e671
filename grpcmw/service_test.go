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

// A service does the same work in each kind of call. The work
// begins with the first message.
type service struct {
	pb.UnimplementedTestServiceServer
	work   func(context.Context) error
	duplex func(pb.TestService_FullDuplexCallServer) error // in place of work, if set
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{}, s.work(ctx)
}

func (s *service) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, stream pb.TestService_StreamingOutputCallServer) error {
	return errors.Join(s.work(stream.Context()), stream.Send(&pb.StreamingOutputCallResponse{}))
}

func (s *service) FullDuplexCall(stream pb.TestService_FullDuplexCallServer) error {
	if s.duplex != nil {
		return s.duplex(stream)
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return errors.Join(s.work(stream.Context()), stream.Send(&pb.StreamingOutputCallResponse{}))
}

// kinds are the kinds of calls. Each makes one with key in its metadata
// and in its first message, and waits for its end.
var kinds = []struct {
	name string
	call func(ctx context.Context, client pb.TestServiceClient, key string, opts ...grpc.CallOption) error
}{
	{"unary", func(ctx context.Context, client pb.TestServiceClient, key string, opts ...grpc.CallOption) error {
		_, err := client.UnaryCall(as(ctx, key), &pb.SimpleRequest{ResponseStatus: named(key)}, opts...)
		return err
	}},
	{"server stream", func(ctx context.Context, client pb.TestServiceClient, key string, opts ...grpc.CallOption) error {
		stream, err := client.StreamingOutputCall(as(ctx, key), &pb.StreamingOutputCallRequest{ResponseStatus: named(key)}, opts...)
		if err != nil {
			return err
		}
		return drain(stream)
	}},
	{"bidi stream", func(ctx context.Context, client pb.TestServiceClient, key string, opts ...grpc.CallOption) error {
		stream, err := client.FullDuplexCall(as(ctx, key), opts...)
		if err != nil {
			return err
		}
		_ = stream.Send(&pb.StreamingOutputCallRequest{ResponseStatus: named(key)})
		_ = stream.CloseSend()
		return drain(stream)
	}},
}

// as is ctx with key in the metadata, unless it is empty or no text.
func as(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "user-bin", key)
}

func named(key string) *pb.EchoStatus { return &pb.EchoStatus{Message: key} }

// drain receives to the end, and returns the error. It is nil for io.EOF.
func drain(stream interface {
	Recv() (*pb.StreamingOutputCallResponse, error)
}) error {
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// sources are the two places in which the calls of kinds carry their key.
var sources = []struct {
	name string
	key  grpcmw.KeyFunc
}{
	{"metadata", grpcmw.Metadata("user-bin")},
	{"first message", grpcmw.Field("response_status.message")},
}

// limited is the server option that puts both interceptors in front.
func limited(l *ratelimit.Limiter, key grpcmw.KeyFunc, opts ...grpcmw.Option) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpcmw.UnaryServerInterceptor(l, key, opts...)),
		grpc.ChainStreamInterceptor(grpcmw.StreamServerInterceptor(l, key, opts...)),
	}
}

// A stack is how many levels a test runs with, and the source of the key. Of
// three levels the middle one admits one call at a time for each key. The others
// have room for the calls of any test.
type stack struct {
	levels int
	key    grpcmw.KeyFunc
}

// limited is the server option that puts s over locks in front. Each Limiter has
// the policy.
func (s stack) limited(locks sqllock.Locker, policy ...ratelimit.Option) []grpc.ServerOption {
	narrow := grpcmw.Level{Limiter: ratelimit.OneAtATime(locks, namespace, policy...), Key: s.key}
	if s.levels == 1 {
		return limited(narrow.Limiter, narrow.Key)
	}
	levels := []grpcmw.Level{
		{Limiter: ratelimit.AtMost(7, locks, "all", policy...), Key: constant("everybody")},
		narrow,
		{Limiter: ratelimit.AtMost(5, locks, "tenant", policy...), Key: constant("acme")},
	}
	return stacked(levels)
}

// stacked is the server option that puts both interceptors of levels in front.
func stacked(levels []grpcmw.Level, opts ...grpcmw.Option) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpcmw.UnaryStackInterceptor(levels, opts...)),
		grpc.ChainStreamInterceptor(grpcmw.StreamStackInterceptor(levels, opts...)),
	}
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
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return pb.NewTestServiceClient(conn)
}

// start is serve and dial.
func start(t testing.TB, s *service, opts ...grpc.ServerOption) pb.TestServiceClient {
	t.Helper()
	_, address := serve(t, s, opts...)
	return dial(t, address)
}

const namespace sqllock.Namespace = "test"

// hold acquires the lock of key until the test ends or release is called.
func hold(t testing.TB, locks sqllock.Locker, key string) (release func()) {
	t.Helper()
	lock, err := locks.TryLock(t.Context(), namespace.Key(key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	return func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// isFree reports whether the lock of key can be acquired.
func isFree(locks sqllock.Locker, key string) bool {
	lock, err := locks.TryLock(context.Background(), namespace.Key(key))
	if err != nil {
		return false
	}
	return lock.Unlock() == nil
}
