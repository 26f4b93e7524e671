// Quickstart is a service with a slow export, one at a time for each user
// across all instances, over HTTP and gRPC. Run it in two terminals:
//
//	go run .
//	go run . -http 127.0.0.1:8081 -grpc 127.0.0.1:9091
//
// The locks are in the database that DATABASE_URL names, such as
// postgres://user:password@host/database. Without DATABASE_URL they are in a
// SQLite file that all instances on this machine share.
//
// Copy from this file, auth.go, export.go and observe.go.
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

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func main() {
	httpAddress := flag.String("http", "127.0.0.1:8080", "where to serve HTTP; port 0 is any free port")
	grpcAddress := flag.String("grpc", "127.0.0.1:9090", "where to serve gRPC")
	takes := flag.Duration("takes", 5*time.Second, "how long an export takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *httpAddress, *grpcAddress, *takes); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, httpAddress, grpcAddress string, takes time.Duration) error {
	// Open. The locks have a small pool of their own, so that a busy service
	// cannot keep them from the database.
	db, err := openDatabase(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	session, err := sqllock.Open(ctx, db) // it finds out which database this is
	if err != nil {
		return err
	}
	defer session.Close()

	// Limit: one export at a time for each user. HTTP and gRPC share the limit, and
	// so do all instances. Authentication comes first: it finds the user.
	limit := ratelimit.OneAtATime(session, "quickstart-export")
	exports := &exporter{takes: takes}

	mux := http.NewServeMux()
	perUser := httpmw.New(limit, httpmw.FromContext(userFrom))
	mux.Handle("POST /exports", authenticate(perUser.Handler(exports)))
	page, err := observe(mux, db, session, limit)
	if err != nil {
		return err
	}
	defer page.Close()
	httpServer := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	grpcServer := grpc.NewServer(grpc.ChainUnaryInterceptor(
		authenticateCall,
		grpcmw.UnaryServerInterceptor(limit, grpcmw.FromContext(userFrom)),
	))
	exportpb.RegisterExportServiceServer(grpcServer, exports)
	reflection.Register(grpcServer) // so that grpcurl knows the service

	// Serve.
	httpListener, err := net.Listen("tcp", httpAddress)
	if err != nil {
		return err
	}
	grpcListener, err := net.Listen("tcp", grpcAddress)
	if err != nil {
		return errors.Join(err, httpListener.Close())
	}
	failed := make(chan error, 2)
	go func() { failed <- httpServer.Serve(httpListener) }()
	go func() { failed <- grpcServer.Serve(grpcListener) }()
	fmt.Printf("ready http=%s grpc=%s\n", httpListener.Addr(), grpcListener.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	return errors.Join(err, shutDown(httpServer, grpcServer))
}

// shutDown waits for requests in flight, for at most 5 seconds. The locks of those
// that are cut off are released when the session closes, or with the process.
func shutDown(httpServer *http.Server, grpcServer *grpc.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, grpcServer.Stop)()
	err := httpServer.Shutdown(ctx)
	grpcServer.GracefulStop()
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(err, httpServer.Close())
	}
	return err
}
