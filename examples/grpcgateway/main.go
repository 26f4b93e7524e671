// Grpcgateway is grpc-gateway in front of the quickstart: a call that package
// grpcmw rejects becomes an HTTP response with Retry-After.
//
//	(cd ../quickstart && go run .)   # in another terminal
//	go run .
//	curl -i -X POST -H 'Authorization: Bearer alice-token' 127.0.0.1:8082/latchkey.quickstart.v1.ExportService/Export
//
// Copy retryafter.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/latchkey-go/latchkey/examples/grpcgateway/exportpb"
)

func main() {
	address := flag.String("http", "127.0.0.1:8082", "where to serve; port 0 is any free port")
	service := flag.String("service", "127.0.0.1:9090", "where the gRPC service is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address, *service); err != nil {
		fmt.Fprintln(os.Stderr, "grpcgateway:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, address, service string) error {
	conn, err := grpc.NewClient(service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	gateway := runtime.NewServeMux(runtime.WithErrorHandler(retryAfter))
	if err := exportpb.RegisterExportServiceHandler(ctx, gateway, conn); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: gateway, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Printf("ready http=%s\n", listener.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(stopping))
}
