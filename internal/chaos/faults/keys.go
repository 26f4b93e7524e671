package faults

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/sqllock"
)

// keyRows are about keys, and the room for them.
var keyRows = []Row{
	{Number: 24, Name: "the server's lock table full", Effect: NothingLost, Bystander: true, inject: lockTableFull},
	{Number: 26, Name: "two names with one id", Quick: true, Effect: NothingLost, Bystander: true, inject: twoNames},
}

// twoNames checks that two names exclude each other if PostgreSQL sees one
// number, in one process and in two. Callers of the fleet use both kinds of name for
// each of their keys, all the time.
func twoNames(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	dsn := f.Cluster.DSN("")
	one, err := f.open(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, one.close()) }()
	other, err := f.open(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, other.close()) }()
	name := sqllock.Namespace("names").Key("one")
	number := sqllock.ID(name.Int64())
	lock, err := one.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(held(ctx, one, number), held(ctx, other, number)); err != nil {
		return nil, err
	}
	if err := lock.Unlock(); err != nil {
		return nil, err
	}
	return nil, free(ctx, other, number, f.Lease)
}
