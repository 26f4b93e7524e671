package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// namespace is the limit's: keys of other limits in the same database are others.
const namespace = "quickstart-export"

// runInstance is the main function of the service: this file is the recipe.
func runInstance(ctx context.Context, f flags) error {
	driver, dsn, err := driverFor(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	// A small *sql.DB for the locks alone: whatever fills the service's own pool
	// cannot keep them from the database. PostgreSQL has one connection for each
	// thousand locks held, up to four, MySQL one for all, and both one more for a
	// moment whenever one is opened, to prove that locks exclude. SQLite has one, while
	// a statement runs.
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(5)

	session, err := sqllock.Open(ctx, db) // finds out by itself which kind of database it is
	if err != nil {
		return err
	}
	defer session.Close()

	// The policy: one export at a time for each user. HTTP and gRPC share it, and
	// so do all instances.
	limit := ratelimit.OneAtATime(session, namespace)
	exports := &exporter{instance: f.instance, takes: f.export, events: newEvents(os.Stdout)}

	mux := http.NewServeMux()
	perUser := httpmw.New(limit, httpmw.FromContext(userFrom))
	mux.Handle("POST /exports", authenticate(perUser.Handler(exports)))

	grpcServer := grpc.NewServer(grpc.ChainUnaryInterceptor(
		authenticateCall,
		grpcmw.UnaryServerInterceptor(limit, grpcmw.FromContext(userFrom)),
	))
	exportpb.RegisterExportServiceServer(grpcServer, exports)
	reflection.Register(grpcServer) // so that grpcurl knows the service

	return serveUntilTold(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, grpcServer, exports)
}

// serveUntilTold serves on free ports, says on which, and stops gracefully at a
// signal or when the parent process has gone.
func serveUntilTold(ctx context.Context, httpServer *http.Server, grpcServer *grpc.Server, exports *exporter) error {
	httpListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	grpcListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, httpListener.Close())
	}
	failed := make(chan error, 2)
	go func() { failed <- httpServer.Serve(httpListener) }()
	go func() { failed <- grpcServer.Serve(grpcListener) }()
	exports.events.ready(httpListener.Addr().String(), grpcListener.Addr().String())

	select {
	case err = <-failed:
	case <-ctx.Done():
	case <-inputEnds():
	}
	return errors.Join(err, shutDown(httpServer, grpcServer))
}

// inputEnds is closed when standard input ends: the parent holds the other end
// of that pipe, and however it dies the pipe ends.
func inputEnds() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}

// shutDown lets requests in flight end, but not for longer than 5 seconds. The
// locks of those that are cut off go back when the session closes, or else with
// the process.
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
