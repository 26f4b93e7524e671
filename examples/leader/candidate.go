package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// The office that is campaigned for, and the time after which the server frees it from a
// leader that is frozen or cut off.
var office = sqllock.Namespace("example-leader").Key("mailer")

const lease = 2 * time.Second

// runCandidate is the main function of the service: this file is the recipe.
func runCandidate(ctx context.Context, number int, url string, out io.Writer) error {
	// A small *sql.DB for the lock alone: whatever fills the service's own pool cannot
	// keep it from the database.
	db, err := sql.Open("pgx", url)
	if err != nil {
		return errors.New("DATABASE_URL is no connection string of PostgreSQL")
	}
	defer db.Close()
	db.SetMaxOpenConns(2)
	quiet := slog.New(slog.DiscardHandler) // a service logs the losses; here the table tells
	session, err := sqllock.Open(ctx, db, sqllock.WithLease(lease), sqllock.WithLogger(quiet))
	if err != nil {
		return err
	}
	defer session.Close()
	campaign := election.New(session, office, election.WithBackoff(100*time.Millisecond, time.Second))

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the parent, however that ends
		stop()
	}()
	told := newReports(out, number)
	health, err := serveHealth(campaign)
	if err != nil {
		return err
	}
	defer health.Close()
	told.address(health.Addr)

	err = campaign.Run(ctx, func(ctx context.Context) error { return lead(ctx, campaign, told) })
	if errors.Is(err, context.Canceled) {
		return nil // told to exit: the key has been given back
	}
	return err
}

// lead does the leader's work until ctx ends, at exit or when the lock is lost. It asks right
// before each effect whether it still leads; see README.md for what even that cannot promise.
func lead(ctx context.Context, campaign *election.Campaign, told *reports) error {
	lock, _ := sqllock.FromContext(ctx)
	status := campaign.Status()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		from := time.Now()
		if err := lock.Err(); err != nil {
			return err
		}
		told.led(status, from, time.Now()) // the effect
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// serveHealth serves GET /health on a free port, in Addr.
func serveHealth(campaign *election.Campaign) (*http.Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, campaign.Status())
	})
	server := &http.Server{Addr: listener.Addr().String(), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}
