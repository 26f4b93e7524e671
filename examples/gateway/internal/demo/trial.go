package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A Trial is one measurement: two gateways, one of which is killed.
type Trial struct {
	DatabaseURL string
	Redis       string        // URL; the gateways count in Redis if it is set
	Streams     int           // a multiple of 20
	Wait        time.Duration // how long clients try again after the kill
}

// A Result is what a Trial has found.
type Result struct {
	Kind   string          // what the gateways count with
	Broken int             // streams that the kill has broken
	Freed  time.Duration   // from the kill until PostgreSQL has freed all locks; 0 with Redis
	After  []time.Duration // from the kill to the first token of a new stream; one for each place that was free again
}

// Leaked returns how many places were not free again.
func (r Result) Leaked() int { return r.Broken - len(r.After) }

// Kill runs t.
func Kill(ctx context.Context, t Trial) (r Result, err error) {
	r = Result{Kind: "locks in PostgreSQL", Broken: t.Streams / 2}
	role := role
	if t.Redis != "" {
		r.Kind, role = "counters in Redis", counterRole
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", r.Kind, err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx) // ends all streams
	defer cancel()
	dir, err := os.MkdirTemp("", "latchkey-gateway-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	accounts := filepath.Join(dir, "accounts.json")
	keys, err := writeAccounts(accounts, t.Streams/perTenant)
	if err != nil {
		return r, err
	}
	service, err := startUpstream()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, service.close()) }()
	c := newClient(t.Streams)
	defer c.http.CloseIdleConnections()

	var gateways [2]*process
	for i := range gateways {
		p, err := startProcess(ctx, role, "gateway-"+rand.Text(), &Gateway{
			DatabaseURL: t.DatabaseURL, Upstream: service.url, Accounts: accounts, Redis: t.Redis,
		})
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, p.Stop(stopTimeout)) }()
		gateways[i] = p
	}
	defer cancel() // before the gateways are stopped: they wait for streams
	if err := t.fill(ctx, c, gateways, keys); err != nil {
		return r, err
	}
	if err := service.awaitInFlight(ctx, int64(t.Streams)); err != nil {
		return r, err
	}
	return r, t.kill(ctx, &r, c, gateways, keys)
}

// fill uses all places of each key, half of them on each gateway. It checks that
// one request more is rejected.
func (t Trial) fill(ctx context.Context, c *client, gateways [2]*process, keys []string) error {
	err := together(len(keys), func(i int) error {
		for n := range perKey {
			if err := c.open(ctx, gateways[n%2].url, keys[i]); err != nil {
				return fmt.Errorf("stream %d of a key: %w", n+1, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return together(len(keys), func(i int) error {
		if err := c.open(ctx, gateways[1].url, keys[i]); !errors.Is(err, errRejected) {
			return errors.Join(errors.New("a request beyond the limit was not rejected"), err)
		}
		return nil
	})
}

// kill kills the first gateway. Each of its clients then asks the second one. All
// times in r count from the kill.
func (t Trial) kill(ctx context.Context, r *Result, c *client, gateways [2]*process, keys []string) (err error) {
	db, err := sql.Open("pgx", t.DatabaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	if t.Redis == "" {
		if held, err := heldBy(ctx, db, gateways[0].application); err != nil || held < t.Streams {
			return errors.Join(fmt.Errorf("%d locks for %d streams on two levels", held, t.Streams/2), err)
		}
	}
	freed := make(chan error, 1)
	until := make(chan struct{})
	begin := time.Now()
	if err := gateways[0].Signal(os.Kill); err != nil {
		return err
	}
	timer := time.AfterFunc(t.Wait, func() { close(until) })
	defer timer.Stop()
	go func() {
		if t.Redis != "" {
			freed <- nil
			return
		}
		err := awaitFreed(ctx, db, gateways[0].application)
		r.Freed = time.Since(begin)
		freed <- err
	}()
	var mu sync.Mutex // protects r.After
	err = together(t.Streams/2, func(i int) error {
		err := c.insist(ctx, until, gateways[1].url, keys[i%len(keys)])
		switch {
		case errors.Is(err, errRejected):
			return nil // the place has leaked
		case err != nil:
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.After = append(r.After, time.Since(begin))
		return nil
	})
	return errors.Join(err, <-freed, gateways[0].Kill())
}

// together calls do(0) to do(n-1) at once, and returns their errors.
func together(n int, do func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return firstOf(errs)
}

// firstOf returns the first error, and how many there are.
func firstOf(errs []error) error {
	var first error
	n := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if n++; first == nil {
			first = err
		}
	}
	if n > 1 {
		return fmt.Errorf("%d errors, such as: %w", n, first)
	}
	return first
}
