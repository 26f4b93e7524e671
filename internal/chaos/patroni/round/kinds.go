//go:build linux

package round

import (
	"context"
	"errors"
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

	loses bool // a commit that was acknowledged may be lost
	fails bool // the fault is mended when another node is the primary
	old   bool // the old primary lives on, and meets a holder of its own

	// harm makes the fault, on a leader. The function that it returns mends it; nil
	// if that is not needed.
	harm func(ctx context.Context, r *run, leader *cluster.Node) (mend func() error, err error)
}

// Kinds are all of them.
var Kinds = []Kind{
	{Number: 1, Name: "switchover", harm: switchover},
	{Number: 2, Name: "leader's PostgreSQL and Patroni killed", loses: true, fails: true, harm: killNode},
	{Number: 4, Name: "leader's node cut off", loses: true, fails: true, old: true, harm: cutOff},
	{Number: 5, Name: "leader cut off, together with some clients", loses: true, fails: true, old: true, harm: partition},
	{Number: 8, Name: "leader's Patroni frozen longer than the ttl", loses: true, fails: true, old: true, harm: freezePatroni},
}

// kindOf returns the kind with a number, which exists.
func kindOf(number int) Kind {
	return Kinds[slices.IndexFunc(Kinds, func(k Kind) bool { return k.Number == number })]
}

// inject makes the fault and mends it.
func (k Kind) inject(ctx context.Context, r *run, o *Outcome) error {
	leader, err := r.cluster.Leader(ctx, limit)
	if err != nil {
		return err
	}
	var h *oldHolder
	if k.old {
		pool, err := r.cluster.OpenHere(leader)
		if err != nil {
			return err
		}
		if h, err = r.holdIn(ctx, pool); err != nil {
			return err
		}
		defer h.end()
	}
	o.Begin = history.Now()
	mend, err := k.harm(ctx, r, leader)
	if err == nil && k.fails {
		err = r.succeeded(ctx, leader, h, o)
	}
	if mend != nil {
		err = errors.Join(err, mend())
	}
	return err
}

// succeeded waits until another node than old is the primary, and a process
// works on it. The holder h on old's side, if there is one, goes on to write
// then. A second more lets locks of the two nodes overlap. A minute without a grant
// is left to the checks that follow.
func (r *run) succeeded(ctx context.Context, old *cluster.Node, h *oldHolder, o *Outcome) error {
	leader, err := r.cluster.Leader(ctx, limit, old)
	if err != nil {
		return err
	}
	if h != nil {
		db, err := r.cluster.Open(leader, cluster.User, cluster.Database)
		if err != nil {
			return err
		}
		if err := errors.Join(h.goOn(ctx, db, o), db.Close()); err != nil {
			return err
		}
	}
	since := history.Now()
	err = fleet.Poll(ctx, time.Minute, "a process to work on the new primary", func(context.Context) (bool, error) {
		return slices.ContainsFunc(r.workers, func(w *worker.Process) bool { return w.Status().LastOK > since }), nil
	})
	if err != nil && !errors.Is(err, fleet.ErrTimeout) {
		return err
	}
	return worker.Pause(ctx, r.upTo(time.Second))
}

func switchover(ctx context.Context, r *run, leader *cluster.Node) (func() error, error) {
	to := slices.DeleteFunc(slices.Clone(r.cluster.Nodes), func(n *cluster.Node) bool { return n == leader })
	return nil, r.cluster.Switchover(ctx, leader, to[r.rand.IntN(len(to))])
}

func killNode(_ context.Context, r *run, leader *cluster.Node) (func() error, error) {
	err := r.cluster.Kill(leader)
	return func() error { return r.cluster.StartPatroni(leader) }, err
}

func cutOff(_ context.Context, _ *run, leader *cluster.Node) (func() error, error) {
	return func() error { return network.Mend(leader.Host) }, network.Cut(leader.Host)
}

// partition leaves the clients of one host on the leader's side.
func partition(_ context.Context, r *run, leader *cluster.Node) (func() error, error) {
	client := r.clients[r.rand.IntN(len(r.clients))]
	return func() error { return network.Mend(leader.Host, client) }, network.Aside(leader.Host, client)
}

// freezePatroni makes two primaries: a frozen Patroni does not step down.
func freezePatroni(_ context.Context, r *run, leader *cluster.Node) (func() error, error) {
	err := r.cluster.SignalPatroni(leader, syscall.SIGSTOP)
	return func() error { return r.cluster.SignalPatroni(leader, syscall.SIGCONT) }, err
}
