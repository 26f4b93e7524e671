// Leader shows leader election: of the instances of a service, one at a time
// does a job for all. `go run .` starts three instances and ends their leaders by
// an exit, by kill -9 and by a freeze. It prints which instance led from when to
// when, and how soon the next took over; this takes about 10 seconds.
//
// The recipe is this file. Package internal/demo starts the instances.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/latchkey-go/latchkey/examples/leader/internal/demo"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// mailer is the key of the job. Its holder is the leader.
var mailer = sqllock.Namespace("example-leader").Key("mailer")

func main() { demo.Main(instance) }

// instance is one instance of the service. It serves and campaigns until ctx
// ends; then it gives the key back, and another instance leads at once.
func instance(ctx context.Context, databaseURL string) error {
	// Open. The pool is for the lock alone, so that a busy service cannot keep
	// the lock from the database.
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return errors.New("DATABASE_URL is no connection string of PostgreSQL")
	}
	defer db.Close()
	db.SetMaxOpenConns(2)
	// The server frees the locks of an instance that has been silent for a lease.
	// An instance serves /health also while the database is away.
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	session, err := sqllock.Open(ctx, db, sqllock.WithLease(demo.Lease), sqllock.WithLazyOpen(), sqllock.WithLogger(log))
	if err != nil {
		return err
	}
	defer session.Close()

	// Campaign. Run calls lead whenever this instance becomes the leader.
	campaign := election.New(session, mailer, election.WithBackoff(100*time.Millisecond, time.Second))
	health, err := serveHealth(campaign)
	if err != nil {
		return err
	}
	defer health.Close()
	log.Info("serving", "address", health.Addr)
	err = campaign.Run(ctx, func(ctx context.Context) error { return lead(ctx, campaign, log) })
	if errors.Is(err, context.Canceled) {
		return nil // the end was asked for, and the key has been given back
	}
	return err
}

// lead does the leader's work until ctx ends: at exit, or when the lock is lost.
// It asks right before each effect whether this instance still leads. README.md
// says what even that cannot promise.
func lead(ctx context.Context, campaign *election.Campaign, log *slog.Logger) error {
	lock, _ := sqllock.FromContext(ctx)
	status := campaign.Status()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		from := time.Now()
		if err := lock.Err(); err != nil {
			return err // another instance may lead
		}
		log.Info("worked", "term", status.Terms, "token", status.Token, "from", from, "to", time.Now()) // the effect
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// serveHealth serves GET /health on a free port, in Addr. The response says
// whether this instance leads, as the lock has it at that moment.
func serveHealth(campaign *election.Campaign) (*http.Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		status := campaign.Status()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have gone
			"leader": status.Leader, "since": status.Since, "token": status.Token,
		})
	})
	server := &http.Server{Addr: listener.Addr().String(), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // until Close
	return server, nil
}
