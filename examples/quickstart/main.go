// Quickstart is a service with a slow export, one at a time for each user
// across all instances, over HTTP and gRPC. `go run .` starts two instances,
// sends requests for a few seconds, and prints which were admitted and that no
// two exports of a user overlapped. `go run . -serve` prints lines to try with
// curl and grpcurl instead.
//
// The recipe is this file, auth.go and export.go. Package internal/demo starts the
// instances and is their client. The locks are in the database that DATABASE_URL
// names (postgres://… or mysql://…), or in a throwaway SQLite file.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"time"

	// The drivers: any that database/sql has for these databases will do.
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"

	"github.com/latchkey-go/latchkey/examples/quickstart/exportpb"
	"github.com/latchkey-go/latchkey/examples/quickstart/internal/demo"
	"github.com/latchkey-go/latchkey/grpcmw"
	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// namespace separates the limit's keys from those of other limits in the database.
const namespace = "quickstart-export"

func main() { demo.Main(namespace, instance) }

// instance is one instance of the service. It serves until ctx ends.
func instance(ctx context.Context, d *demo.Instance) error {
	// Open. The locks have a small pool of their own, so that a busy service
	// cannot keep them from the database. PostgreSQL and MariaDB need one
	// connection for each thousand locks held, up to four. They need one more,
	// briefly, while connecting: it proves that locks exclude. SQLite borrows
	// one for each statement.
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(5)
	session, err := sqllock.Open(ctx, db) // it finds out which database this is
	if err != nil {
		return err
	}
	defer session.Close()

	// Limit: one export at a time for each user. HTTP and gRPC share the limit, and
	// so do all instances. Authentication comes first: it finds the user.
	limit := ratelimit.OneAtATime(session, namespace)
	exports := &exporter{Instance: d}

	mux := http.NewServeMux()
	perUser := httpmw.New(limit, httpmw.FromContext(userFrom))
	mux.Handle("POST /exports", authenticate(perUser.Handler(exports)))
	page, err := observe(mux, db, session, limit)
	if err != nil {
		return err
	}
	defer page.Close()
	httpServer := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	httpServer.RegisterOnShutdown(func() { page.Close() }) // ends the event streams of viewers

	grpcServer := grpc.NewServer(grpc.ChainUnaryInterceptor(
		authenticateCall,
		grpcmw.UnaryServerInterceptor(limit, grpcmw.FromContext(userFrom)),
	))
	exportpb.RegisterExportServiceServer(grpcServer, exports)
	reflection.Register(grpcServer) // so that grpcurl knows the service

	// Serve on free ports.
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
	d.Serving(httpListener.Addr().String(), grpcListener.Addr().String())
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
