// Webhook shows a receiver of webhooks: each event takes effect exactly once,
// though it is delivered several times, to several processes.
//
//	export DATABASE_URL=postgres://user:password@host/database WEBHOOK_SECRET=s3cret
//	go run . -migrate
//	go run .
//
// Copy from this file, signature.go and once.go.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func main() {
	makeTables := flag.Bool("migrate", false, "make the tables and end")
	address := flag.String("http", "127.0.0.1:8080", "where to serve; port 0 is any free port")
	wait := flag.Duration("wait", 0, "how long a duplicate waits for the one in flight (0: it is rejected)")
	maxIdle := flag.Duration("max-idle", time.Minute, "how long a process that freezes may keep an event")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *makeTables {
		err = migrate(ctx, os.Getenv("DATABASE_URL"))
	} else {
		err = run(ctx, os.Getenv("DATABASE_URL"), *address, &receiver{
			secret: []byte(os.Getenv("WEBHOOK_SECRET")), wait: *wait, maxIdle: *maxIdle,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, databaseURL, address string, rc *receiver) error {
	if len(rc.secret) == 0 {
		return errors.New("WEBHOOK_SECRET is not set: the secret that is shared with the sender")
	}
	// Open. The locks have a small pool of their own, so that a busy service cannot
	// keep them from the database.
	var err error
	if rc.db, err = openPool(databaseURL, 20); err != nil {
		return err
	}
	defer rc.db.Close()
	if err := checkSchema(ctx, rc.db); err != nil { // now, and not at the first webhook
		return err
	}
	lockDB, err := openPool(databaseURL, 5)
	if err != nil {
		return err
	}
	defer lockDB.Close()
	session, err := sqllock.Open(ctx, lockDB)
	if err != nil {
		return err
	}
	defer session.Close()

	// Serve, and shut down gracefully.
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: rc.handler(session), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Printf("ready http=%s\n", listener.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if stopErr := server.Shutdown(stopping); stopErr != nil {
		err = errors.Join(err, stopErr, server.Close())
	}
	return err
}

// openPool opens a pool of at most n connections.
func openPool(databaseURL string, n int) (*sql.DB, error) {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil || databaseURL == "" {
		return nil, errors.New("DATABASE_URL is not a URL such as postgres://user@host/database")
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// A receiver takes events whose signature is right, one delivery of each at a time.
type receiver struct {
	db      *sql.DB
	secret  []byte
	wait    time.Duration // how long a duplicate waits for the one in flight; 0: it is rejected
	maxIdle time.Duration // how long a transaction may be idle between two statements
}

// handler returns the service. One delivery of an event is processed at a time, in
// all processes. The others are rejected with 409, which the sender takes for "try
// again later", or wait.
func (rc *receiver) handler(locks sqllock.Locker) http.Handler {
	var opts []ratelimit.Option
	if rc.wait > 0 {
		opts = append(opts, ratelimit.WithWait(rc.wait, 1000))
	}
	limit := ratelimit.OneAtATime(locks, "webhook", opts...)
	perEvent := httpmw.New(limit, httpmw.FromContext(eventID), httpmw.WithConflict())

	mux := http.NewServeMux()
	mux.Handle("POST /webhooks", verify(rc.secret, perEvent.Handler(rc)))
	return mux
}

// ServeHTTP processes an event. A sender that hangs up does not undo the work. A
// handler that hangs does not keep the event for long.
func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, _ := eventFrom(r.Context())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	done, err := rc.once(ctx, e)
	switch {
	case errors.Is(err, errOtherPayload): // a bug of the sender, or worse: an operator must look at it
		slog.Error("an event has come again with another payload; the first one counts", e.trace())
		http.Error(w, "this event has come before with another payload", http.StatusUnprocessableEntity)
	case poisonous(err): // sending it again would not help: an operator must look at it
		slog.Error("an event cannot be processed", e.trace(), "error", reason(err))
		http.Error(w, "this event cannot be processed", http.StatusUnprocessableEntity)
	case err != nil:
		slog.Error("an event could not be processed; it will be sent again", e.trace(), "error", reason(err))
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	default:
		done.send(w)
	}
}
