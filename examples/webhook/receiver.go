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

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/latchkey-go/latchkey/httpmw"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// runReceiver is the main function of the service: this file is the recipe.
func runReceiver(ctx context.Context, f flags) error {
	secret := os.Getenv("WEBHOOK_SECRET")
	if secret == "" {
		return errors.New("WEBHOOK_SECRET is not set: the secret that is shared with the sender")
	}
	crash, err := parseCrash(os.Getenv("WEBHOOK_CRASH"))
	if err != nil {
		return err
	}
	work, err := openPool(os.Getenv("DATABASE_URL"), 20)
	if err != nil {
		return err
	}
	defer work.Close()
	if err := checkSchema(ctx, work); err != nil { // now, and not at the first webhook
		return err
	}
	// The locks have a small pool of their own: work that fills its pool cannot keep
	// them from the database.
	own, err := openPool(os.Getenv("DATABASE_URL"), 5)
	if err != nil {
		return err
	}
	defer own.Close()
	session, err := sqllock.Open(ctx, own)
	if err != nil {
		return err
	}
	defer session.Close()
	rc := &receiver{db: work, secret: []byte(secret), wait: f.wait, maxIdle: time.Minute, work: f.work, crash: crash}
	return serveUntilTold(ctx, rc.handler(session))
}

// A receiver takes events whose signature is right, one delivery of each at a time.
type receiver struct {
	db      *sql.DB
	secret  []byte
	wait    time.Duration // how long a duplicate waits for the one in flight; 0: it is refused
	maxIdle time.Duration // how long a transaction may be between two statements
	work    time.Duration // how long an effect takes, for the show
	crash   *crash        // nil in real life
}

// handler is the service.
func (rc *receiver) handler(locks sqllock.Locker) http.Handler {
	// One delivery of an event at a time, in all processes: the others are refused
	// with 409, which the sender takes for "try again later", or wait.
	var opts []ratelimit.Option
	if rc.wait > 0 {
		opts = append(opts, ratelimit.WithWait(rc.wait, 1000))
	}
	limit := ratelimit.OneAtATime(locks, "webhook", opts...)
	perEvent := httpmw.New(limit, httpmw.FromContext(eventID), httpmw.WithConflict())

	mux := http.NewServeMux()
	// The signature is checked first: the id of an event is a key only when it is
	// known who has sent it. Else anybody could keep an event out.
	mux.Handle("POST /webhooks", verify(rc.secret, perEvent.Handler(rc)))
	return mux
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, _ := eventFrom(r.Context())
	// A sender that hangs up does not undo the work; and not even a stuck one
	// holds up the event for long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	done, err := rc.once(ctx, e)
	switch {
	case errors.Is(err, errOtherPayload): // somebody must look at this: the sender's bug, or worse
		slog.Error("an event has come again with another payload; the first one counts", e.trace())
		http.Error(w, "this event has come before with another payload", http.StatusUnprocessableEntity)
	case poisonous(err): // to send it again would not help: somebody must look at this, too
		slog.Error("an event cannot be processed", e.trace(), "error", reason(err))
		http.Error(w, "this event cannot be processed", http.StatusUnprocessableEntity)
	case err != nil:
		slog.Error("an event could not be processed; it will be sent again", e.trace(), "error", reason(err))
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	default:
		if done.Entry == 0 {
			slog.Warn("an event has come again whose entry in the ledger has been removed", e.trace())
		}
		rc.crash.at(afterCommit, e.ID, done.again)
		done.send(w)
	}
}

// serveUntilTold serves on a free port, says on which, and stops gracefully at a
// signal or when the parent process has gone.
func serveUntilTold(ctx context.Context, h http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	say(line{Address: listener.Addr().String()})

	select {
	case err = <-failed:
	case <-ctx.Done():
	case <-inputEnds():
	}
	stopping, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if stopErr := server.Shutdown(stopping); stopErr != nil {
		err = errors.Join(err, stopErr, server.Close())
	}
	return err
}

// inputEnds is closed when standard input ends: the parent holds the other end of
// that pipe, and however it dies the pipe ends.
func inputEnds() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	return ended
}
