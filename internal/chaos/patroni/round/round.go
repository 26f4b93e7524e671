//go:build linux

// Package round is a part of the campaign: one cluster, from its making to its
// end, with processes under test at work on it and faults injected.
package round

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Orders say what a round does.
type Orders struct {
	Index int
	Seed  uint64
	Rows  []int // the faults, in order, by the numbers of their kinds
	Lease time.Duration
}

// A Result is what a round has found.
type Result struct {
	Server     string // versions, and the number of processors
	Outcomes   []Outcome
	Operations int                  // calls
	Contended  int                  // of them, those that another process' call for the key overlapped
	Stored     int                  // fenced writes in the database
	Fenced     int                  // writes that the fence refused
	Times      map[int]*check.Times // of each kind of fault, by its number
	Violations []string             // what was promised and did not hold
	Kept       string               // directory of the histories; empty: all was well

	// Stuck is why the cluster did not become whole, or the round had no regular end;
	// empty if it had. Not all of it was looked at then, so none of its faults counts.
	Stuck string
}

// An Outcome is what one fault has done, or several of a kind.
type Outcome struct {
	Row            int
	Begin, Settled history.Moment  // Settled: each process served and the cluster was whole
	Excused        []time.Duration // for which two locks of a key overlapped, with an excuse
	Missing        int             // writes that were acknowledged and are not stored
	Refused        int             // holders of an old primary that the fence of the new one refused
	Reinitialized  int             // standbys that Patroni did not rewind by itself
}

// limit is how long the cluster may take to be whole again, and a process to
// serve. A fault that takes longer is stuck, and ends the round.
const limit = 60*time.Second + 4*cluster.TTL

// Limit bounds a whole round.
func (o *Orders) Limit() time.Duration {
	return 5*time.Minute + time.Duration(len(o.Rows))*2*limit
}

// What the processes do. A fault takes much longer on a machine without time
// left. So callers rest longer between two calls than elsewhere, and look less
// often at the locks that they hold.
const (
	processes = 4
	callers   = 4 // in each
	keys      = 12
	pause     = 100 * time.Millisecond // the longest between two calls
	look      = 10 * time.Millisecond
)

// A run is a round under way.
type run struct {
	Orders
	dir     string // of the histories
	rand    *rand.Rand
	cluster *cluster.Cluster
	clients []network.Host // the processes of the first go through HAProxy on it, those of the second know all nodes
	workers []*worker.Process
	began   time.Time
	result  *Result
	events  []history.Event // of this process's own writes
	numbers int64
}

// Run carries out a round, in a sandbox, and prints its Result. The error says
// what kept the round from being carried out; what was violated is in the
// Result.
func Run(ctx context.Context, o Orders) error {
	ctx, cancel := context.WithTimeout(ctx, o.Limit())
	defer cancel()
	r := &run{
		Orders: o, dir: filepath.Join(sandbox.Dir, "histories"), result: &Result{},
		rand: rand.New(rand.NewPCG(o.Seed, uint64(o.Index))), began: time.Now(),
	}
	if err := r.setUp(ctx); err != nil { // there is nothing to check
		return fmt.Errorf("round %d: %w", o.Index, errors.Join(err, r.kill()))
	}
	r.say("the cluster is up, and %d processes serve", len(r.workers))
	r.inject(ctx)
	rows, err := r.finish(ctx)
	r.stick(errors.Join(err, r.kill()))
	r.check(rows)
	if len(r.result.Violations) > 0 || r.result.Stuck != "" {
		if err := r.keep(rows); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r.result)
}

// say prints a line of progress.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "round %-3d %7s  %s\n", r.Index, time.Since(r.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
}

// kill ends the processes that are still alive.
func (r *run) kill() (err error) {
	for _, w := range r.workers {
		err = errors.Join(err, w.Kill())
	}
	return err
}

// stick notes an error that kept the round from its regular end.
func (r *run) stick(err error) {
	if err != nil && r.result.Stuck == "" {
		r.result.Stuck = err.Error()
	}
}

// setUp makes the network, the cluster, its database and the processes.
func (r *run) setUp(ctx context.Context) (err error) {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	hosts, err := network.New("node1", "node2", "node3", "proxied", "direct")
	if err != nil {
		return err
	}
	r.clients = hosts[3:]
	if r.cluster, err = cluster.Start(ctx, sandbox.Dir, hosts[:3], r.clients[0]); err != nil {
		return err
	}
	if err := r.createDatabase(ctx); err != nil {
		return err
	}
	for process := 1; process <= processes; process++ {
		if err := r.startWorker(process); err != nil {
			return err
		}
	}
	return fleet.Serving(ctx, limit, r.workers)
}

// createDatabase makes the clients' role and database, with the tables of
// fenced writes, and waits until all nodes have it. A driver that meets a standby
// without it does not try the next host.
func (r *run) createDatabase(ctx context.Context) error {
	leader, err := r.cluster.Leader(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	schema := append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema)
	version, err := r.cluster.Version(ctx, leader)
	r.result.Server = fmt.Sprintf("%s, %s, %d processors", version, runtime.Version(), runtime.NumCPU())
	err = errors.Join(err,
		r.cluster.Exec(ctx, leader, "postgres", "CREATE ROLE "+cluster.User+" LOGIN", "CREATE DATABASE "+cluster.Database),
		r.cluster.Exec(ctx, leader, cluster.Database, schema...))
	for _, n := range r.cluster.Nodes {
		err = errors.Join(err, fleet.Poll(ctx, 20*time.Second, "the database to reach "+n.Host.Name, func(ctx context.Context) (bool, error) {
			return r.cluster.Holds(ctx, n, "postgres", "SELECT count(*) = 1 FROM pg_database WHERE datname = '"+cluster.Database+"'")
		}))
	}
	return err
}

// driver returns that of a process, from 1.
func driver(process int) string {
	drivers := pgtest.Drivers()
	return drivers[(process-1)%len(drivers)]
}

// hostOf returns the host of a process. Each has one of each driver.
func (r *run) hostOf(process int) network.Host { return r.clients[(process-1)/2] }

func (r *run) startWorker(process int) error {
	dsn := r.cluster.MultiHost()
	if r.hostOf(process) == r.clients[0] {
		dsn = cluster.Proxied()
	}
	w, err := worker.Start(worker.Config{
		Process: process, Driver: driver(process), DSN: dsn, Direct: dsn,
		History: filepath.Join(r.dir, fmt.Sprintf("process-%d.jsonl", process)),
		Lease:   r.Lease, Callers: callers, Keys: keys, Pause: pause, Look: look, Seed: r.rand.Uint64(),
	}, r.hostOf(process).Env())
	if err == nil {
		r.workers = append(r.workers, w)
	}
	return err
}

// inject injects the faults, until one is stuck.
func (r *run) inject(ctx context.Context) {
	for i, row := range r.Rows {
		kind := kindOf(row)
		outcome := Outcome{Row: row, Begin: history.Now()}
		err := worker.Pause(ctx, r.upTo(500*time.Millisecond))
		if err == nil {
			err = kind.inject(ctx, r, &outcome)
		}
		if err == nil {
			before := r.cluster.Reinitialized
			err = r.cluster.Whole(ctx, limit)
			outcome.Reinitialized = r.cluster.Reinitialized - before
		}
		if err != nil {
			r.stick(fmt.Errorf("fault %d, of kind %d: %w", i+1, row, err))
		} else if err = fleet.Serving(ctx, limit, r.workers); err != nil { // there is a cluster to serve on
			r.violated("after fault %d, of kind %d, on a whole cluster: %v", i+1, row, err)
		}
		outcome.Settled = history.Now()
		r.result.Outcomes = append(r.result.Outcomes, outcome)
		r.say("%3d of %d  %-42s  whole again after %v", i+1, len(r.Rows), kind.Name, time.Duration(outcome.Settled-outcome.Begin).Round(10*time.Millisecond))
		if err != nil {
			r.say("the round ends: %v", err)
			return
		}
	}
}

func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.rand.Int64N(int64(d))) }

func (r *run) violated(format string, args ...any) {
	r.result.Violations = append(r.result.Violations, fmt.Sprintf(format, args...))
}
