package route

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// grpcConns is how many connections all callers share: one would have a single
// goroutine write all requests.
const grpcConns = 4

// GRPC serves the route as a unary call.
func GRPC(g *Guard) (Endpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var opts []grpc.ServerOption
	if g.unary != nil {
		opts = append(opts, grpc.UnaryInterceptor(g.unary))
	}
	r := &grpcEndpoint{server: grpc.NewServer(opts...)}
	pb.RegisterTestServiceServer(r.server, noop{})
	go func() { _ = r.server.Serve(listener) }()
	for range grpcConns {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.conns = append(r.conns, conn)
		r.clients = append(r.clients, pb.NewTestServiceClient(conn))
	}
	return r, nil
}

type grpcEndpoint struct {
	server  *grpc.Server
	conns   []*grpc.ClientConn
	clients []pb.TestServiceClient
}

func (r *grpcEndpoint) Call(ctx context.Context, caller int, user string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, userHeader, user)
	_, err := r.clients[caller%len(r.clients)].EmptyCall(ctx, &pb.Empty{})
	if status.Code(err) == codes.ResourceExhausted {
		return ErrRefused
	}
	return err
}

func (r *grpcEndpoint) Close() error {
	var errs []error
	for _, conn := range r.conns {
		errs = append(errs, conn.Close())
	}
	r.server.Stop()
	return errors.Join(errs...)
}

type noop struct {
	pb.UnimplementedTestServiceServer
}

func (noop) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }
