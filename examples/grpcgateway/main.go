// Grpcgateway is grpc-gateway in front of the quickstart: a call that package
// grpcmw rejects becomes an HTTP response with Retry-After.
//
//	(cd ../quickstart && go run .)   # in another terminal
//	go run .
//	curl -i -X POST -H 'Authorization: Bearer alice-token' 127.0.0.1:8082/exports
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

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
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
	gateway, err := newGateway(exportpb.NewExportServiceClient(conn), retryAfter)
	if err != nil {
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

// newGateway returns the gateway of a service. With annotations in the service's
// .proto, protoc-gen-grpc-gateway generates what the route does here.
func newGateway(service exportpb.ExportServiceClient, onError runtime.ErrorHandlerFunc) (*runtime.ServeMux, error) {
	gateway := runtime.NewServeMux(runtime.WithErrorHandler(onError))
	err := gateway.HandlePath(http.MethodPost, "/exports", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		_, out := runtime.MarshalerForRequest(gateway, r)
		ctx, err := runtime.AnnotateContext(r.Context(), gateway, r, exportpb.ExportService_Export_FullMethodName)
		var response *exportpb.ExportResponse
		if err == nil {
			response, err = service.Export(ctx, &exportpb.ExportRequest{})
		}
		ctx = runtime.NewServerMetadataContext(r.Context(), runtime.ServerMetadata{})
		if err != nil {
			runtime.HTTPError(ctx, gateway, out, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, gateway, out, w, r, response)
	})
	return gateway, err
}
