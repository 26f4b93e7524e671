//go:build linux

package round

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A Kind is one kind of fault. Its number never changes.
type Kind struct {
	Number int
	Name   string

	// Loses: a commit that was acknowledged may be lost, unless replication is
	// synchronous.
	Loses bool

	// inject makes the fault and mends it.
	inject func(ctx context.Context, r *run, o *Outcome) error
}

// Kinds are all of them.
var Kinds = []Kind{
	{Number: 1, Name: "switchover", inject: switchover},
	{Number: 2, Name: "leader's PostgreSQL and Patroni killed", Loses: true, inject: killNode},
	{Number: 3, Name: "leader's postmaster killed", inject: killPostmaster},
	{Number: 4, Name: "leader's node cut off", Loses: true, inject: cutOff},
	{Number: 5, Name: "leader cut off, together with some clients", Loses: true, inject: partition},
	{Number: 6, Name: "etcd's leader killed", inject: killEtcd},
	{Number: 7, Name: "etcd without a quorum", inject: killQuorum},
	{Number: 8, Name: "leader's Patroni frozen longer than the ttl", Loses: true, inject: freezePatroni},
}

// kindOf returns the kind with a number.
func kindOf(number int) Kind {
	for _, k := range Kinds {
		if k.Number == number {
			return k
		}
	}
	return Kind{Number: number, inject: func(context.Context, *run, *Outcome) error {
		return fmt.Errorf("there is no kind %d", number)
	}}
}

// leader returns the primary.
func (r *run) leader(ctx context.Context) (*cluster.Node, error) {
	return r.cluster.Leader(ctx, r.limit())
}

// other returns a random node that is not n.
func (r *run) other(n *cluster.Node) *cluster.Node {
	for {
		if o := r.cluster.Nodes[r.rand.IntN(len(r.cluster.Nodes))]; o != n {
			return o
		}
	}
}

func (o *Outcome) begin()  { o.Begin = history.Now() }
func (o *Outcome) mended() { o.End = history.Now() }

// succeeded waits until another node than old is the primary, and up to a second
// more. The holder m on old's side, if there is one, goes on to write then.
func (r *run) succeeded(ctx context.Context, old *cluster.Node, m *minority) error {
	leader, err := r.cluster.Leader(ctx, r.limit(), old)
	if err != nil {
		return err
	}
	if m != nil {
		if err := m.goOn(ctx, leader); err != nil {
			return fmt.Errorf("a holder on the old primary: %w", err)
		}
	}
	return worker.Pause(ctx, r.upTo(time.Second))
}

func switchover(ctx context.Context, r *run, o *Outcome) error {
	from, err := r.leader(ctx)
	if err != nil {
		return err
	}
	o.begin()
	err = r.cluster.Switchover(ctx, from, r.other(from))
	o.mended()
	return err
}

func killNode(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.leader(ctx)
	if err != nil {
		return err
	}
	o.begin()
	if err := errors.Join(r.cluster.KillPatroni(n), r.cluster.KillPostgres(n)); err != nil {
		return err
	}
	if err := r.succeeded(ctx, n, nil); err != nil {
		return err
	}
	err = r.cluster.StartPatroni(n)
	o.mended()
	return err
}

func killPostmaster(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.leader(ctx)
	if err != nil {
		return err
	}
	o.begin()
	err = r.cluster.KillPostmaster(n)
	o.mended()
	return err
}

// working waits until a process works on the new primary, and up to a second
// more, so that locks of the old one can overlap its locks. A minute without a
// grant is left to the checks that follow.
func (r *run) working(ctx context.Context) error {
	since := history.Now()
	err := fleet.Poll(ctx, time.Minute, "a process to work on the new primary", func(context.Context) (bool, error) {
		return slices.ContainsFunc(r.workers, func(w *worker.Process) bool { return w.Status().LastOK > since }), nil
	})
	if err != nil && !errors.Is(err, fleet.ErrTimeout) {
		return err
	}
	return worker.Pause(ctx, r.upTo(time.Second))
}

func cutOff(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.leader(ctx)
	if err != nil {
		return err
	}
	m, err := r.holdOn(ctx, n, o)
	if err != nil {
		return err
	}
	defer m.end()
	o.begin()
	if err := r.network.Cut(n.Host); err != nil {
		return err
	}
	isolated := r.isolate(n)
	err = errors.Join(r.succeeded(ctx, n, m), r.working(ctx))
	isolated()
	err = errors.Join(err, r.network.Mend(n.Host))
	o.mended()
	return err
}

// isolate notes that from now on only processes on the given hosts reach n. The
// function that it returns notes the end of that.
func (r *run) isolate(n *cluster.Node, side ...network.Host) (end func()) {
	i := isolation{Node: n.Host.Name, span: span{From: history.Now()}}
	for index := range 2 * len(r.clients) {
		if !slices.Contains(side, r.hostOf(index)) {
			i.Processes = append(i.Processes, index+1)
		}
	}
	return func() {
		i.To = history.Now()
		r.isolated = append(r.isolated, i)
	}
}

// partition leaves the clients of one host on the leader's side.
func partition(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.leader(ctx)
	if err != nil {
		return err
	}
	client := r.clients[r.rand.IntN(len(r.clients))]
	m, err := r.holdOn(ctx, n, o)
	if err != nil {
		return err
	}
	defer m.end()
	o.begin()
	if err := r.network.Aside(n.Host, client); err != nil {
		return err
	}
	isolated := r.isolate(n, client)
	err = r.succeeded(ctx, n, m)
	isolated()
	err = errors.Join(err, r.network.Mend(n.Host, client))
	o.mended()
	return err
}

func killEtcd(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.cluster.EtcdLeader(ctx)
	if err != nil {
		return err
	}
	o.begin()
	if err := r.cluster.KillEtcd(n); err != nil {
		return err
	}
	err = errors.Join(worker.Pause(ctx, r.upTo(3*time.Second)), r.cluster.StartEtcd(n))
	o.mended()
	return err
}

// killQuorum kills two of three until the leader has stepped down.
func killQuorum(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.leader(ctx)
	if err != nil {
		return err
	}
	killed := r.rand.Perm(len(r.cluster.Nodes))[1:]
	o.begin()
	for _, i := range killed {
		err = errors.Join(err, r.cluster.KillEtcd(r.cluster.Nodes[i]))
	}
	if err == nil {
		err = errors.Join(r.cluster.Demoted(ctx, r.limit(), n), worker.Pause(ctx, r.upTo(time.Second)))
	}
	for _, i := range killed {
		err = errors.Join(err, r.cluster.StartEtcd(r.cluster.Nodes[i]))
	}
	o.mended()
	return err
}

// freezePatroni makes two primaries: a frozen Patroni does not step down.
func freezePatroni(ctx context.Context, r *run, o *Outcome) error {
	n, err := r.leader(ctx)
	if err != nil {
		return err
	}
	m, err := r.holdOn(ctx, n, o)
	if err != nil {
		return err
	}
	defer m.end()
	o.begin()
	if err := r.cluster.SignalPatroni(n, syscall.SIGSTOP); err != nil {
		return err
	}
	err = errors.Join(r.succeeded(ctx, n, m), r.cluster.SignalPatroni(n, syscall.SIGCONT))
	o.mended()
	return err
}
