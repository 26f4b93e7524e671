// Package demo sends webhooks to receivers that it starts as processes and kills,
// and checks in the database that each event took effect once.
package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// A Service is what the demonstration needs of the recipe.
type Service struct {
	Migrate func(ctx context.Context, databaseURL string) error
	Receive func(context.Context, *Receiver) error
	Sign    func(secret, body []byte, at time.Time) string
}

// flags are the command line.
type flags struct {
	receive, migrate bool
	wait, work       time.Duration
	events           int
	timeout          time.Duration
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("webhook", flag.ContinueOnError)
	set.BoolVar(&f.receive, "receiver", false, "be one receiver, with WEBHOOK_SECRET, until standard input ends")
	set.BoolVar(&f.migrate, "migrate", false, "make the tables in DATABASE_URL's database and end")
	set.DurationVar(&f.wait, "wait", 0, "how long a duplicate waits for the one in flight (0: it is rejected)")
	set.DurationVar(&f.work, "work", 10*time.Millisecond, "how long an effect takes")
	set.IntVar(&f.events, "events", 200, "how many events to send")
	set.DurationVar(&f.timeout, "timeout", 2*time.Minute, "when to give up")
	if err := set.Parse(args); err != nil {
		return flags{}, err
	}
	if set.NArg() > 0 {
		return flags{}, errors.New("it takes flags only")
	}
	if f.events <= 0 || f.wait < 0 || f.timeout <= 0 {
		return flags{}, errors.New("-events and -timeout must be positive, -wait not negative")
	}
	return f, nil
}

// Main runs the demonstration. It starts this program again for each receiver,
// and calls s.Receive there. The database is the PostgreSQL that DATABASE_URL
// names, or a throwaway one.
func Main(s Service) {
	subprocess.Main(role, func(ctx context.Context, r *Receiver) error { return s.Receive(ctx, r) })
	f, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err == nil {
		err = s.run(ctx, f, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func (s Service) run(ctx context.Context, f flags, out io.Writer) error {
	switch {
	case f.receive:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		c := Config{DatabaseURL: os.Getenv("DATABASE_URL"), Secret: os.Getenv("WEBHOOK_SECRET"), Wait: f.wait, Work: f.work}
		return s.Receive(ctx, &Receiver{Config: c, serving: func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}})
	case f.migrate:
		return withDatabase(func(url string) error { return s.Migrate(ctx, url) })
	default:
		return withDatabase(func(url string) error { return s.demonstrate(ctx, f, url, out) })
	}
}

// withDatabase calls do with the database that DATABASE_URL names, or a throwaway
// one.
func withDatabase(do func(url string) error) error {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return do(url)
	}
	// A commit is on disk before the server confirms it, as with the default
	// settings.
	cluster, err := pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	if err != nil {
		return err
	}
	return errors.Join(do(cluster.DSN("")), cluster.Close())
}

const (
	copies  = 4  // deliveries of an event at once
	senders = 16 // events under way at once
)

// demonstrate starts the receivers, delivers events, and accounts for them.
func (s Service) demonstrate(ctx context.Context, f flags, url string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errors.New("the time set by -timeout is over"))
	defer cancel()
	if err := s.Migrate(ctx, url); err != nil {
		return err
	}
	secret := rand.Text()
	out = &wholeWrites{w: out}
	receivers, err := startFleet(ctx, Config{DatabaseURL: url, Secret: secret, Wait: f.wait, Work: f.work}, out, crashPlan(f.events))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receivers.stop()) }()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: copies * senders}}
	defer client.CloseIdleConnections()
	sender := &sender{sign: s.Sign, secret: []byte(secret), client: client, fleet: receivers}
	sender.tally.away = func() { fmt.Fprintln(out, "a receiver responds that it cannot work now") }

	run := runName()
	fmt.Fprintf(out, "%d receivers, each a process, on one PostgreSQL. A sender delivers %d events, each %d times at once to both\n"+
		"receivers and once more afterwards. Two receivers kill themselves (kill -9) in the middle of an event.\n", fleetSize, f.events, copies)
	sent, err := sender.sendAll(ctx, run, f.events, out)
	if err != nil {
		return err
	}
	if err := sender.sendBad(ctx, sent[0]); err != nil {
		return err
	}
	return sender.account(ctx, url, run, sent, out)
}

// runName returns what the ids of this run's events begin with.
func runName() string {
	name := make([]byte, 4)
	_, _ = rand.Read(name) // never fails
	return "evt-" + hex.EncodeToString(name) + "-"
}

// sendAll delivers n events, several at a time. If ctx ends, it begins no more of
// them and returns the cause.
func (s *sender) sendAll(ctx context.Context, run string, n int, out io.Writer) ([]event, error) {
	events := make([]event, n)
	errs := make([]error, n)
	next := make(chan int)
	var workers sync.WaitGroup
	for range senders {
		workers.Go(func() {
			for i := range next {
				errs[i] = s.everywhere(ctx, events[i], copies)
			}
		})
	}
	for i := range events {
		if ctx.Err() != nil {
			break
		}
		events[i] = event{ID: fmt.Sprintf("%s%04d", run, i+1), Account: fmt.Sprintf("acct-%d", i%7), Amount: int64(100 + i)}
		next <- i
		if (i+1)%50 == 0 {
			fmt.Fprintf(out, "%d events begun\n", i+1)
		}
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return events, errors.Join(errs...)
}

// sendBad delivers what must be rejected: a known event with another amount, and a
// new one with a wrong signature.
func (s *sender) sendBad(ctx context.Context, known event) error {
	known.Amount *= 1000
	for _, bad := range []struct {
		e      event
		secret []byte
		want   int
	}{
		{known, s.secret, http.StatusUnprocessableEntity},
		{event{ID: known.ID + "-forged", Account: known.Account, Amount: 1}, []byte("guessed"), http.StatusUnauthorized},
	} {
		body, err := json.Marshal(bad.e)
		if err != nil {
			return err
		}
		d, err := s.insist(ctx, 0, body, s.sign(bad.secret, body, time.Now()))
		if err != nil {
			return err
		}
		if d.status != bad.want {
			return fmt.Errorf("a webhook that must be rejected with %d got %d", bad.want, d.status)
		}
	}
	return nil
}

// wholeWrites keeps the lines of several goroutines apart.
type wholeWrites struct {
	mu sync.Mutex // protects w
	w  io.Writer
}

func (w *wholeWrites) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}
