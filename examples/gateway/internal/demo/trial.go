package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A trial is one measurement: two gateways of a role, one of which is killed.
type trial struct {
	kind        string // what the gateways count with
	role        string
	databaseURL string
	redis       string
	streams     int
	wait        time.Duration // how long clients try again after the kill
}

// A result is what a trial has found.
type result struct {
	kind   string
	broken int             // streams that the kill has broken
	after  []time.Duration // from the kill to the first token of a new stream; shorter than broken if places are missing
}

// run runs the trial.
func (t trial) run(ctx context.Context) (r result, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends all streams
	defer cancel()
	dir, err := os.MkdirTemp("", "latchkey-gateway-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	accounts := filepath.Join(dir, "accounts.json")
	keys, err := writeAccounts(accounts, t.streams/perTenant)
	if err != nil {
		return r, err
	}
	service, err := startUpstream()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, service.close()) }()
	c := newClient(t.streams)
	defer c.http.CloseIdleConnections()

	var gateways [2]*process
	for i := range gateways {
		p, err := startProcess(ctx, t.role, &Gateway{
			DatabaseURL: t.databaseURL, Upstream: service.url, Accounts: accounts, Redis: t.redis,
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
	if err := service.awaitInFlight(ctx, int64(t.streams)); err != nil {
		return r, err
	}
	return t.kill(ctx, c, gateways, keys)
}

// fill uses all places of each key, half of them on each gateway. It checks that
// one request more is rejected.
func (t trial) fill(ctx context.Context, c *client, gateways [2]*process, keys []string) error {
	err := together(len(keys), func(i int) error {
		for n := range perKey {
			if _, err := c.open(ctx, gateways[n%2].url, keys[i]); err != nil {
				return fmt.Errorf("stream %d of a key: %w", n+1, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return together(len(keys), func(i int) error {
		if _, err := c.open(ctx, gateways[1].url, keys[i]); !errors.Is(err, errRejected) {
			return errors.Join(errors.New("a request beyond the limit was not rejected"), err)
		}
		return nil
	})
}

// kill kills the first gateway. Each of its clients then asks the second one.
func (t trial) kill(ctx context.Context, c *client, gateways [2]*process, keys []string) (result, error) {
	r := result{kind: t.kind, broken: len(keys) * perKey / 2}
	var mu sync.Mutex // protects r.after
	until := make(chan struct{})
	begin := time.Now()
	if err := gateways[0].Signal(os.Kill); err != nil {
		return r, err
	}
	timer := time.AfterFunc(t.wait, func() { close(until) })
	defer timer.Stop()
	err := together(r.broken, func(i int) error {
		_, err := c.insist(ctx, until, gateways[1].url, keys[i%len(keys)])
		if errors.Is(err, errRejected) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		r.after = append(r.after, time.Since(begin))
		return err
	})
	return r, errors.Join(err, gateways[0].Kill())
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
