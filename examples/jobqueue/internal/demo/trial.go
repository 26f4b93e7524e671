package main

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

// A trial is one way put to the test: processes work on jobs, some are killed, the
// database goes away.
type trial struct {
	flags   flags
	way     string
	place   *place
	db      *sqlx.DB
	schema  string
	fleet   []*process
	random  *rand.Rand
	account account
}

var titles = map[string]string{
	"advisory": "(a) a lock on each job",
	"skip":     "(b) SKIP LOCKED, a lock on each worker",
}

// try has processes work on f.jobs jobs one way, and returns what became of them.
func try(ctx context.Context, p *place, way string, f flags, out io.Writer) (a *account, err error) {
	if p.cluster == nil {
		f.outage = 0
	}
	fmt.Fprintf(out, "%s: %d jobs, %d processes of %d workers (seed %d) …\n", titles[way], f.jobs, processes, f.workers, f.seed)
	err = p.withSchema(ctx, func(db *sqlx.DB, schema string) error {
		t := &trial{flags: f, way: way, place: p, db: db, schema: schema, random: rand.New(rand.NewPCG(f.seed, 0))} //nolint:gosec // to be repeated
		t.account.outcomes = map[string]int{}
		err := t.run(ctx)
		a = &t.account
		return errors.Join(err, t.stop())
	})
	return a, err
}

func (t *trial) run(ctx context.Context) error {
	if err := addJobs(ctx, t.db, t.flags.jobs); err != nil {
		return err
	}
	for range processes {
		if err := t.start(); err != nil {
			return err
		}
	}
	for _, p := range t.fleet {
		<-p.ready
	}
	begin := time.Now()
	if err := t.disturb(ctx); err != nil {
		return err
	}
	t.account.took = time.Since(begin)
	if err := t.stop(); err != nil { // so that who comes late is counted, too
		return err
	}
	return t.db.GetContext(ctx, &t.account, takeAccount)
}

// disturb kills workers, each when a number of jobs has been settled, until all are.
func (t *trial) disturb(ctx context.Context) error {
	kills := make([]int, t.flags.kills)
	for i := range kills {
		kills[i] = t.random.IntN(t.flags.jobs)
	}
	slices.Sort(kills)
	outageAt := t.flags.jobs / 2
	for {
		var settled int
		if err := t.db.GetContext(ctx, &settled, "SELECT count(*) FROM jobs WHERE status IN ('done', 'dead')"); err != nil {
			return err
		}
		for len(kills) > 0 && kills[0] <= settled {
			kills = kills[1:]
			if err := t.killOne(); err != nil {
				return err
			}
		}
		if t.flags.outage > 0 && t.account.outage == 0 && settled >= outageAt {
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

func (t *trial) start() error {
	p, err := startProcess(t.flags, t.way, t.place.url, t.schema)
	if err == nil {
		t.fleet = append(t.fleet, p)
		t.account.started++
	}
	return err
}

// killOne kills a worker in the midst of its work, and starts another.
func (t *trial) killOne() error {
	i := t.random.IntN(len(t.fleet))
	victim := t.fleet[i]
	<-victim.ready
	t.fleet = slices.Delete(t.fleet, i, i+1)
	if err := victim.kill(); err != nil {
		return err
	}
	t.account.kills++
	t.note(victim)
	return t.start()
}

func (t *trial) outage(ctx context.Context) error {
	t.account.outage = t.flags.outage
	if err := t.place.outage(ctx, t.flags.outage); err != nil {
		return err
	}
	return t.db.PingContext(ctx) // its pool finds that its connections are gone
}

// dead is an error if a worker has ended by itself.
func (t *trial) dead() error {
	for _, p := range t.fleet {
		select {
		case <-p.ended:
			return fmt.Errorf("a worker ended by itself: %v", p.err) //nolint:errorlint // its exit code is nobody's concern
		default:
		}
	}
	return nil
}

func (t *trial) note(p *process) {
	for outcome, n := range p.outcomes {
		t.account.outcomes[outcome] += n
	}
}

// stop stops all; called again it does nothing.
func (t *trial) stop() (err error) {
	for _, p := range t.fleet { // all at once, then wait
		_ = p.stdin.Close()
	}
	for _, p := range t.fleet {
		err = errors.Join(err, p.stop())
		t.note(p)
	}
	t.fleet = nil
	return err
}
