//go:build linux

// Package round is a part of the campaign: one cluster, from its making to its
// end, with processes under test at work on it and faults injected.
package round

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

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
	Index   int
	Seed    uint64
	Rows    []int  // the faults, in order, by the numbers of their kinds
	Dir     string // for the histories; it exists
	Result  string // file for the Result
	Lease   time.Duration
	Cluster cluster.Settings
	Callers int // in each process
	Keys    int
}

// limit is how long the cluster may take to be whole again, and a process to
// serve. A fault that takes longer is stuck, and ends the round.
func (o *Orders) limit() time.Duration { return 60*time.Second + 4*o.Cluster.TTL }

// Limit bounds a whole round.
func (o *Orders) Limit() time.Duration {
	return 5*time.Minute + time.Duration(len(o.Rows))*2*o.limit()
}

// The hosts. The clients of the first go through HAProxy, which runs on
// the same host. Those of the second have a DSN with all nodes.
var (
	nodeNames   = []string{"node1", "node2", "node3"}
	clientNames = []string{"proxied", "direct"}
)

// Several clusters share the processors, and a fault takes much longer on a
// machine without time left. So callers rest longer between two calls than
// elsewhere, and look less often at the locks that they hold.
const (
	Pause = 100 * time.Millisecond // the longest between two calls
	Look  = 10 * time.Millisecond
)

// A run is a round under way.
type run struct {
	Orders
	rand      *rand.Rand
	network   *network.Network
	cluster   *cluster.Cluster
	clients   []network.Host
	workers   []*worker.Process
	out       io.Writer
	began     time.Time
	result    *Result
	seen      []cluster.Writable
	starved   []span
	isolated  []isolation
	events    []history.Event // of this process's own writes
	oldWrites []oldWrite
	numbers   int64
}

// Run carries out a round, in a sandbox, and writes its Result. The error says
// what kept the round from being carried out; what was violated is in the
// Result.
func Run(o Orders) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.Limit())
	defer cancel()
	r := &run{Orders: o, rand: rand.New(rand.NewPCG(o.Seed, uint64(o.Index))), out: os.Stderr, began: time.Now()}
	r.result = &Result{Index: o.Index}
	err := r.setUp(ctx)
	if err == nil {
		r.say("the cluster is up, and %d processes serve", len(r.workers))
		watching, stop := context.WithCancel(ctx)
		primaries, done := r.cluster.Watch(watching)
		overslept := starved(watching)
		r.inject(ctx)
		r.stick(r.finish(ctx))
		r.stick(r.kill())
		stop() // what a process did is seen to its end
		<-done
		r.seen, r.starved = primaries.Seen(), <-overslept
	}
	if err != nil { // there is nothing to check
		return fmt.Errorf("round %d: %w", o.Index, errors.Join(err, r.kill()))
	}
	if err := r.check(); err != nil {
		r.violated("the checks ended early: %v", err)
	}
	r.result.Took = time.Since(r.began)
	text, err := json.Marshal(r.result)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(o.Result+".new", text, 0o600), os.Rename(o.Result+".new", o.Result))
}

// say prints a line of progress.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.out, "round %-3d %7s  %s\n", r.Index, time.Since(r.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...))
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
	if n := len(r.result.Outcomes); err != nil && n > 0 && !r.result.Stuck() {
		r.result.Outcomes[n-1].Stuck = "the end of the round: " + err.Error()
	}
}

// setUp makes the network, the cluster, its database and the processes.
func (r *run) setUp(ctx context.Context) (err error) {
	if r.network, err = network.New(append(append([]string(nil), nodeNames...), clientNames...)...); err != nil {
		return err
	}
	nodes := r.network.Hosts[:len(nodeNames)]
	r.clients = r.network.Hosts[len(nodeNames):]
	if r.cluster, err = cluster.Start(ctx, sandbox.Dir, r.Cluster, nodes, r.clients[0]); err != nil {
		return err
	}
	if err := r.createDatabase(ctx); err != nil {
		return err
	}
	for i := range 2 * len(r.clients) {
		if err := r.startWorker(i); err != nil {
			return err
		}
	}
	return r.serving(ctx)
}

// createDatabase makes the clients' role and database, with the tables of
// fenced writes.
func (r *run) createDatabase(ctx context.Context) error {
	leader, err := r.cluster.Leader(ctx, 20*time.Second)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		database   string
		statements []string
	}{
		{"postgres", []string{"CREATE ROLE " + cluster.User + " LOGIN", "CREATE DATABASE " + cluster.Database}},
		{cluster.Database, append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema, marksSchema)},
	} {
		db, err := r.cluster.Open(leader, step.database)
		if err != nil {
			return err
		}
		for _, statement := range step.statements {
			if _, err = db.ExecContext(ctx, statement); err != nil {
				break
			}
		}
		if err := errors.Join(err, db.Close()); err != nil {
			return fmt.Errorf("schema: %w", err)
		}
	}
	version, err := r.cluster.Version(ctx, leader)
	if err != nil {
		return err
	}
	r.result.Server = fmt.Sprintf("%s, %s, %d processors", version, runtime.Version(), runtime.NumCPU())
	for _, n := range r.cluster.Nodes {
		if err := r.hasDatabase(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// hasDatabase waits until n has the clients' database. A driver that meets a
// standby without it does not try the next host.
func (r *run) hasDatabase(ctx context.Context, n *cluster.Node) error {
	db, err := r.cluster.Open(n, "postgres")
	if err != nil {
		return err
	}
	err = fleet.Poll(ctx, 20*time.Second, "the database to reach "+n.Host.Name, func(ctx context.Context) (there bool, err error) {
		return there, db.QueryRowContext(ctx, "SELECT count(*) = 1 FROM pg_database WHERE datname = $1", cluster.Database).Scan(&there)
	})
	return errors.Join(err, db.Close())
}

// driver returns that of a process. Each client has one process of each.
func driver(process int) string {
	drivers := pgtest.Drivers()
	return drivers[(process-1)%len(drivers)]
}

// hostOf returns the host of the i-th process, from 0.
func (r *run) hostOf(i int) network.Host { return r.clients[i/2] }

// startWorker starts the i-th process, from 0.
func (r *run) startWorker(i int) error {
	host, dsn := r.hostOf(i), r.cluster.MultiHost()
	if slices.Contains(proxied, i+1) {
		dsn = cluster.Proxied()
	}
	dsn = cluster.Named(dsn, clientName(i+1))
	w, err := worker.Start(worker.Config{
		Process: i + 1, Driver: driver(i + 1),
		DSN: dsn, Direct: dsn,
		History: filepath.Join(r.Dir, fmt.Sprintf("process-%d.jsonl", i+1)),
		Lease:   r.Lease, Callers: r.Callers, Keys: r.Keys, Pause: Pause, Look: Look, Seed: r.rand.Uint64(),
	}, host.Env())
	if err == nil {
		r.workers = append(r.workers, w)
	}
	return err
}

// serving waits until each process has granted a lock that was asked for from
// now on.
func (r *run) serving(ctx context.Context) error {
	since := history.Now()
	var idle int
	err := fleet.Poll(ctx, r.limit(), "every process to serve", func(context.Context) (bool, error) {
		for _, w := range r.workers {
			select {
			case <-w.Ended():
				return false, fmt.Errorf("process %d has ended", w.Config.Process)
			default:
			}
			if w.Status().LastOK <= since {
				idle = w.Config.Process
				return false, nil
			}
		}
		return true, nil
	})
	if errors.Is(err, fleet.ErrTimeout) {
		return fmt.Errorf("process %d does not serve: %w", idle, err)
	}
	return err
}

// inject injects the faults, until one is stuck.
func (r *run) inject(ctx context.Context) {
	for i, row := range r.Rows {
		kind := kindOf(row)
		err := worker.Pause(ctx, r.upTo(500*time.Millisecond))
		lost := r.lost()
		outcome := Outcome{Row: row}
		if err == nil {
			err = kind.inject(ctx, r, &outcome)
		}
		if outcome.End == 0 {
			outcome.End = history.Now()
		}
		if err == nil {
			before := r.cluster.Reinitialized
			err = r.cluster.Whole(ctx, r.limit())
			outcome.Reinitialized = r.cluster.Reinitialized - before
		}
		if err != nil {
			outcome.Stuck = err.Error()
		} else if err = r.serving(ctx); err != nil { // there is a cluster to serve on
			r.violated("after fault %d, of kind %d, on a whole cluster: %v", i+1, row, err)
		}
		outcome.Settled = history.Now()
		r.result.Outcomes = append(r.result.Outcomes, outcome)
		r.say("%3d of %d  %-42s %3d lost, whole again after %v", i+1, len(r.Rows), kind.Name, r.lost()-lost,
			time.Duration(outcome.Settled-outcome.Begin).Round(10*time.Millisecond))
		if err != nil {
			r.say("the round ends: %v", err)
			return
		}
	}
}

// lost is how many locks the processes have reported lost so far.
func (r *run) lost() (n int64) {
	for _, w := range r.workers {
		n += w.Status().Lost
	}
	return n
}

func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.rand.Int64N(int64(d))) }
