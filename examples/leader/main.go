// Leader shows leader election: of the instances of a service, one at a time
// does a job for all. Run it in two terminals, and stop or kill the leader:
//
//	export DATABASE_URL=postgres://user:password@host/database
//	go run .
//	go run . -http 127.0.0.1:8081
//
// GET /health says whether an instance leads.
package main

import (
	"context"
	"encoding/json"
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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// mailer is the key of the job. Its holder is the leader.
var mailer = sqllock.Namespace("example-leader").Key("mailer")

func main() {
	address := flag.String("http", "127.0.0.1:8080", "where to serve /health; port 0 is any free port")
	lease := flag.Duration("lease", 10*time.Second, "after how long a frozen leader loses the lock")
	every := flag.Duration("every", time.Second, "how often the leader works")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *address, *lease, *every); err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

// run serves and campaigns until ctx ends; then it gives the key back, and another
// instance leads at once.
func run(ctx context.Context, address string, lease, every time.Duration) error {
	// Open. The pool is for the lock alone, so that a busy service cannot keep
	// the lock from the database. An instance serves /health also while the
	// database is away.
	config, err := pgx.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		return errors.New("DATABASE_URL is not understood") // the driver's own error may show it
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	db.SetMaxOpenConns(2)
	session, err := sqllock.Open(ctx, db, sqllock.WithLease(lease), sqllock.WithLazyOpen())
	if err != nil {
		return err
	}
	defer session.Close()

	// Campaign. Run calls lead whenever this instance becomes the leader.
	campaign := election.New(session, mailer, election.WithBackoff(100*time.Millisecond, time.Second))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: health(campaign), ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }() // until Close
	fmt.Printf("ready http=%s\n", listener.Addr())
	err = campaign.Run(ctx, func(ctx context.Context) error { return lead(ctx, campaign, every) })
	if errors.Is(err, context.Canceled) {
		return nil // the end was asked for, and the key has been given back
	}
	return err
}

// lead does the leader's work until ctx ends: at exit, or when the lock is lost.
// It asks right before each effect whether this instance still leads. README.md
// says what even that cannot promise.
func lead(ctx context.Context, campaign *election.Campaign, every time.Duration) error {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	lock, _ := sqllock.FromContext(ctx)
	status := campaign.Status()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		asked := time.Now()
		if err := lock.Err(); err != nil {
			return err // another instance may lead
		}
		log.Info("worked", "term", status.Terms, "token", status.Token, "asked", asked) // the effect
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// health responds to GET /health. It says whether this instance leads, as the lock
// has it at that moment.
func health(campaign *election.Campaign) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		status := campaign.Status()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have gone
			"leader": status.Leader, "since": status.Since, "token": status.Token,
		})
	})
	return mux
}
