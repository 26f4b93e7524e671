// Package demo is the service behind the gateway and the clients in front of it.
// It starts two gateways, fills them with streams, kills one and measures how
// soon its places are free again.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// A Service is what the demonstration needs of the recipe.
type Service struct {
	Gateway func(context.Context, *Gateway) error
	Proxy   func(upstream *url.URL) http.Handler // for the gateway that counts in Redis
}

// flags are the command line.
type flags struct {
	streams int
	redis   string
	wait    time.Duration
	timeout time.Duration
}

func parseFlags(args []string) (flags, error) {
	var f flags
	set := flag.NewFlagSet("gateway", flag.ContinueOnError)
	set.IntVar(&f.streams, "streams", 200, "how many streams are in flight, a multiple of 20")
	set.StringVar(&f.redis, "redis", "", "also measure counters in the Redis with this URL, such as redis://127.0.0.1:6379")
	set.DurationVar(&f.wait, "wait", 10*time.Second, "how long clients of the killed instance try again")
	set.DurationVar(&f.timeout, "timeout", 2*time.Minute, "when to give up")
	if err := set.Parse(args); err != nil {
		return flags{}, err
	}
	if set.NArg() > 0 {
		return flags{}, errors.New("it takes flags only")
	}
	if f.streams <= 0 || f.streams%perTenant != 0 || f.wait <= 0 || f.timeout <= 0 {
		return flags{}, errors.New("-streams must be a positive multiple of 20, -wait and -timeout positive")
	}
	return f, nil
}

// Main runs the demonstration. It starts this program again for each gateway,
// and calls s.Gateway there. The database is the PostgreSQL that DATABASE_URL
// names, or a throwaway one.
func Main(s Service) {
	Roles(s)
	f, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if err == nil {
		err = withDatabase(f.streams, func(url string) error { return run(ctx, f, url, os.Stdout) })
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

// Roles makes this process a gateway if it was started as one. It does not return
// then.
func Roles(s Service) {
	subprocess.Main(role, func(ctx context.Context, g *Gateway) error { return s.Gateway(ctx, g) })
	subprocess.Main(counterRole, func(ctx context.Context, g *Gateway) error { return s.counterGateway(ctx, g) })
}

// withDatabase calls do with the database that DATABASE_URL names, or a throwaway
// one. A Session fills at most 60 % of the server's lock table. That of a default
// server has 6,400 places, which is too small for two levels of 2,000 streams.
func withDatabase(streams int, do func(url string) error) error {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return do(url)
	}
	cluster, err := pgtest.Start(pgtest.WithSettings(map[string]string{
		"max_locks_per_transaction": fmt.Sprint(64 + streams/10),
	}))
	if err != nil {
		return err
	}
	return errors.Join(do(cluster.DSN("")), cluster.Close())
}

// run measures the gateways, and those that count in Redis if there is one.
func run(ctx context.Context, f flags, databaseURL string, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errors.New("the time set by -timeout is over"))
	defer cancel()
	fmt.Fprintf(out, "2 gateways, each a process. %d tenants with %d API keys each, and %d streams for each key: %d streams\n"+
		"in flight. Each key has all its places in use, half of them on each gateway. Gateway 1 is killed (kill -9).\n"+
		"From then on each client that had a stream there asks gateway 2 for a new one, every %v.\n\n",
		f.streams/perTenant, keysPerTenant, perKey, f.streams, retryEvery)
	locks, err := Kill(ctx, Trial{DatabaseURL: databaseURL, Streams: f.streams, Wait: f.wait})
	if err != nil {
		return err
	}
	results := []Result{locks}
	if f.redis != "" {
		counters, err := Kill(ctx, Trial{Redis: f.redis, Streams: f.streams, Wait: f.wait})
		if err != nil {
			return err
		}
		results = append(results, counters)
	}
	report(out, results)
	if leaked := locks.Leaked(); leaked > 0 {
		return fmt.Errorf("%d places were not free again after %v", leaked, f.wait)
	}
	return nil
}
