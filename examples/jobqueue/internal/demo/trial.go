package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jmoiron/sqlx"
)

// A Trial puts one way to the test: processes work on jobs, some are killed,
// and the database goes away.
type Trial struct {
	DB      *sqlx.DB
	Fleet   []*Process
	Account Account

	flags  Flags
	way    string
	url    string
	place  *Place
	random *rand.Rand
}

// NewTrial returns a Trial in a schema.
func NewTrial(f Flags, way string, p *Place, db *sqlx.DB, schema string) *Trial {
	random := rand.New(rand.NewPCG(f.seed, 0)) //nolint:gosec // it must be repeatable
	return &Trial{flags: f, way: way, url: inSchema(p.URL, schema), place: p, DB: db, random: random, Account: Account{Outcomes: map[string]int{}}}
}

var titles = map[string]string{
	Advisory: "(a) a lock on each job",
	Skip:     "(b) SKIP LOCKED, a lock on each worker",
}

// Try runs processes that work on jobs in one way, and returns what became of the
// jobs.
func Try(ctx context.Context, p *Place, way string, f Flags, out io.Writer) (a *Account, err error) {
	if p.cluster == nil {
		f.outage = 0
	}
	fmt.Fprintf(out, "%s: %d jobs, %d processes that work on %d at a time (seed %d) …\n", titles[way], f.jobs, processes, f.atOnce, f.seed)
	err = p.WithSchema(ctx, func(db *sqlx.DB, schema string) error {
		t := NewTrial(f, way, p, db, schema)
		err := t.run(ctx)
		a = &t.Account
		return errors.Join(err, t.Stop())
	})
	return a, err
}

func (t *Trial) run(ctx context.Context) error {
	if err := addJobs(ctx, t.DB, t.flags.jobs); err != nil {
		return err
	}
	for range processes {
		if err := t.Start(); err != nil {
			return err
		}
	}
	for _, p := range t.Fleet { // a worker waits for the database as long as that takes
		select {
		case <-p.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	begin := time.Now()
	if err := t.disturb(ctx); err != nil {
		return err
	}
	t.Account.took = time.Since(begin)
	if err := t.Stop(); err != nil { // after this all outcomes are counted
		return err
	}
	return t.DB.GetContext(ctx, &t.Account, takeAccount)
}

// disturb kills workers, each when a number of jobs is done or dead, until all jobs
// are.
func (t *Trial) disturb(ctx context.Context) error {
	kills := make([]int, t.flags.kills)
	for i := range kills {
		kills[i] = t.random.IntN(t.flags.jobs)
	}
	slices.Sort(kills)
	outageAt := t.flags.jobs / 2
	for {
		var settled int
		if err := t.DB.GetContext(ctx, &settled, "SELECT count(*) FROM jobs WHERE status IN ('done', 'dead')"); err != nil {
			return err
		}
		for len(kills) > 0 && kills[0] <= settled {
			kills = kills[1:]
			if err := t.killOne(); err != nil {
				return err
			}
		}
		if t.flags.outage > 0 && t.Account.outage == 0 && settled >= outageAt {
			if err := t.outage(ctx); err != nil {
				return err
			}
		}
		if settled == t.flags.jobs {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := t.dead(); err != nil {
			return err
		}
	}
}

// Start starts a worker.
func (t *Trial) Start() error {
	p, err := StartProcess(Worker{DatabaseURL: t.url, Way: t.way, AtOnce: t.flags.atOnce, Lease: t.flags.lease, Verbose: t.flags.verbose})
	if err == nil {
		t.Fleet = append(t.Fleet, p)
		t.Account.started++
	}
	return err
}

// killOne kills a worker in the middle of its work, and starts another.
func (t *Trial) killOne() error {
	i := t.random.IntN(len(t.Fleet))
	victim := t.Fleet[i]
	<-victim.ready
	t.Fleet = slices.Delete(t.Fleet, i, i+1)
	if err := victim.Kill(); err != nil {
		return err
	}
	t.Account.Kills++
	t.note(victim)
	return t.Start()
}

func (t *Trial) outage(ctx context.Context) error {
	t.Account.outage = t.flags.outage
	if err := t.place.outage(ctx, t.flags.outage); err != nil {
		return err
	}
	return t.DB.PingContext(ctx) // its pool finds that its connections are gone
}

// dead returns an error if a worker has ended by itself.
func (t *Trial) dead() error {
	for _, p := range t.Fleet {
		select {
		case <-p.Ended():
			return fmt.Errorf("a worker ended by itself: %w", p.Wait())
		default:
		}
	}
	return nil
}

// note counts the outcomes of a worker that has ended.
func (t *Trial) note(p *Process) {
	<-p.read
	for outcome, n := range p.outcomes {
		t.Account.Outcomes[outcome] += n
	}
}

// Stop stops all workers. Called again it does nothing.
func (t *Trial) Stop() (err error) {
	for _, p := range t.Fleet { // all at once
		p.Ask()
	}
	for _, p := range t.Fleet {
		err = errors.Join(err, p.Stop())
		t.note(p)
	}
	t.Fleet = nil
	return err
}
