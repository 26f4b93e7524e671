//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
)

// maxFailures is how many rounds in a row may fail as a whole, so that nothing
// is known of them, or be stuck, before the campaign ends.
const maxFailures = 5

// A plan hands out the faults that are still to be injected.
type plan struct {
	mu       sync.Mutex // protects all
	options  *options
	began    time.Time
	missing  map[int]int // by row
	index    int         // of the last round
	failures int         // since the last round that was well
	failed   int         // rounds without a result
	results  []*round.Result
}

// rounds runs what is missing of the campaign, several rounds at once, and
// returns the results of all.
func (o *options) rounds(ctx context.Context, progress io.Writer) ([]*round.Result, error) {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return nil, err
	}
	if err := o.settle(); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "seed %d\n", o.seed)
	p, err := o.resume()
	if err != nil {
		return nil, err
	}
	if n := len(p.results); n > 0 {
		fmt.Fprintf(progress, "%d rounds are there already; %d faults are missing\n", n, p.left())
	}
	if p.left() > 0 && !p.over() {
		if err := cluster.Check(); err != nil {
			return nil, err
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, o.clusters)
	for i := range o.clusters {
		wg.Go(func() { errs[i] = p.work(ctx, progress) })
	}
	wg.Wait()
	err = errors.Join(errs...)
	if n := p.left(); n > 0 && err == nil {
		err = fmt.Errorf("%d faults are missing: go on with the same -out", n)
	}
	if p.failed > 0 {
		fmt.Fprintf(progress, "%d rounds failed as a whole: nothing is known of their faults\n", p.failed)
	}
	return p.results, errors.Join(err, sameServer(p.results))
}

// sameServer checks that all rounds ran on the same versions.
func sameServer(results []*round.Result) error {
	for _, r := range results {
		if r.Server != results[0].Server {
			return fmt.Errorf("round %d ran on %s, and round %d on %s: use another -out", results[0].Index, results[0].Server, r.Index, r.Server)
		}
	}
	return nil
}

// left is how many faults are missing.
func (p *plan) left() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, missing := range p.missing {
		n += max(0, missing)
	}
	return n
}

// resume returns the plan, less what earlier runs have done.
func (o *options) resume() (*plan, error) {
	p := &plan{options: o, began: time.Now(), missing: map[int]int{}}
	for _, row := range o.rows {
		p.missing[row] = o.each
	}
	files, err := filepath.Glob(filepath.Join(o.dir, "round-*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		r, err := load(name)
		if err != nil {
			return nil, err
		}
		p.results = append(p.results, r)
		p.index = max(p.index, r.Index)
		for _, row := range injected(r) {
			p.missing[row]--
		}
	}
	return p, nil
}

// injected returns the rows of the faults of r that count.
func injected(r *round.Result) (rows []int) {
	if r.Stuck() {
		return nil
	}
	for _, o := range r.Outcomes {
		rows = append(rows, o.Row)
	}
	return rows
}

func load(name string) (*round.Result, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &round.Result{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return r, nil
}

// work runs rounds until nothing is missing.
func (p *plan) work(ctx context.Context, progress io.Writer) error {
	for {
		orders, ok := p.next()
		if !ok {
			return nil
		}
		result, err := runRound(ctx, orders, progress)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			fmt.Fprintln(progress, err)
		}
		if err := p.done(orders, result, err); err != nil {
			return err
		}
	}
}

// over reports whether no further round begins, because of -for.
func (p *plan) over() bool {
	return p.options.limit > 0 && time.Since(p.began) >= p.options.limit
}

// next returns the orders of the next round: faults in random order, of all that
// are missing.
func (p *plan) next() (round.Orders, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.options
	if p.over() {
		return round.Orders{}, false
	}
	p.index++
	rng := rand.New(rand.NewPCG(o.seed, uint64(p.index)))
	var all []int
	for _, row := range o.rows {
		for range p.missing[row] {
			all = append(all, row)
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(o.perRound, len(all))]
	for _, row := range all {
		p.missing[row]--
	}
	name := filepath.Join(o.dir, fmt.Sprintf("round-%04d", p.index))
	return round.Orders{
		Index: p.index, Seed: o.seed, Rows: all, Dir: name, Result: name + ".json",
		Lease: o.lease, Cluster: o.settings, Callers: o.callers, Keys: o.keys,
	}, len(all) > 0
}

// done takes in a round. The faults that it has not injected are missing again.
func (p *plan) done(orders round.Orders, result *round.Result, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range orders.Rows {
		p.missing[row]++
	}
	if result != nil {
		p.results = append(p.results, result)
		for _, row := range injected(result) {
			p.missing[row]--
		}
		if result.Stuck() {
			err = errors.New("it was stuck")
		}
	} else {
		p.failed++
	}
	if err == nil {
		p.failures = 0
		return nil
	}
	if p.failures++; p.failures >= maxFailures {
		return fmt.Errorf("%d rounds in a row have failed, the last one: %w", p.failures, err)
	}
	return nil
}

// runRound runs one round in a sandbox. Its histories are removed if all was
// well.
func runRound(ctx context.Context, orders round.Orders, progress io.Writer) (*round.Result, error) {
	if err := errors.Join(os.RemoveAll(orders.Dir), os.Mkdir(orders.Dir, 0o700)); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, orders.Limit())
	defer cancel()
	if err := sandbox.Run(limited, orders, progress, progress); err != nil {
		return nil, fmt.Errorf("round %d failed: %w", orders.Index, err)
	}
	result, err := load(orders.Result)
	if err == nil && len(result.Violations) == 0 && !result.Stuck() {
		err = os.RemoveAll(orders.Dir)
	}
	return result, err
}
