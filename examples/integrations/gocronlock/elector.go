package gocronlock

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// ErrNotLeader reports that another scheduler leads, or none.
var ErrNotLeader = errors.New("gocronlock: this scheduler does not lead")

// An Elector is a gocron.Elector: one scheduler of the fleet at a time starts
// jobs.
//
//	elector := gocronlock.NewElector(locks, sqllock.Namespace("leader").Key("jobs"))
//	go elector.Run(ctx)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
type Elector struct{ campaign *election.Campaign }

// NewElector returns an Elector, which never leads before Run is called.
func NewElector(locks sqllock.Locker, key sqllock.Key, opts ...election.Option) *Elector {
	return &Elector{election.New(locks, key, opts...)}
}

// Run stands for leader until ctx ends: see election.Campaign.Run for its errors.
// End ctx after Shutdown of the scheduler. Otherwise another scheduler leads while
// jobs run here.
func (e *Elector) Run(ctx context.Context) error {
	return e.campaign.Run(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

// IsLeader returns nil if this scheduler leads at the moment of the call.
func (e *Elector) IsLeader(context.Context) error {
	if !e.campaign.Status().Leader {
		return ErrNotLeader
	}
	return nil
}
