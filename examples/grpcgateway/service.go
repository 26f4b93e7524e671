package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/latchkey-go/latchkey/examples/grpcgateway/exportpb"
	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// A service is the gRPC service. work is what an export does.
type service struct {
	exportpb.UnimplementedExportServiceServer
	work func(context.Context) error
}

func (s *service) Export(ctx context.Context, _ *exportpb.ExportRequest) (*exportpb.ExportResponse, error) {
	if err := s.work(ctx); err != nil {
		return nil, err
	}
	user, _ := userID(ctx)
	return &exportpb.ExportResponse{User: user}, nil
}

// userKey is the context key of the authenticated user.
type userKey struct{}

func userID(ctx context.Context) (string, bool) {
	user, ok := ctx.Value(userKey{}).(string)
	return user, ok
}

// authenticate stands for real authentication: the token is the user's name.
func authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if user, ok := strings.CutPrefix(value, "Bearer "); ok {
			return next(context.WithValue(ctx, userKey{}, user), req)
		}
	}
	return nil, status.Error(codes.Unauthenticated, "log in first")
}

// serve starts the gRPC server on a local socket. It returns the gateway in front
// of it, which the caller serves, and a func that ends both.
func serve(ctx context.Context, limit *ratelimit.Limiter, work func(context.Context) error, opts ...runtime.ServeMuxOption) (http.Handler, func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		authenticate,
		grpcmw.UnaryServerInterceptor(limit, grpcmw.FromContext(userID)),
	))
	exportpb.RegisterExportServiceServer(server, &service{work: work})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.Stop()
		return nil, nil, errors.Join(err, <-ended)
	}
	stop := func() error {
		err := conn.Close()
		server.Stop()
		return errors.Join(err, <-ended)
	}
	mux := runtime.NewServeMux(append([]runtime.ServeMuxOption{runtime.WithErrorHandler(retryAfter)}, opts...)...)
	if err := exportpb.RegisterExportServiceHandler(ctx, mux, conn); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return mux, stop, nil
}
