package faults

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/sqllock"
)

// secretRows are faults of configuration: fleets that make different keys of
// one name.
var secretRows = []Row{
	{Number: 28, Name: "two fleets, two key secrets", Quick: true, Effect: NothingLost, Bystander: true, inject: twoSecrets},
}

// twoSecrets has two fleets with different secrets ask at once, of which at
// most one may be served. Then the other asks again, before and after the first
// has released its lock. At last the first fleet leaves, and the other must be
// served.
func twoSecrets(ctx context.Context, f *Injector) (victim *fleet.Member, err error) {
	dsn := f.Cluster.DSN("")
	namespace := sqllock.Namespace("secrets")
	var (
		clients [2]*client
		keys    [2]sqllock.Key
	)
	for i, secret := range []string{"one", "other"} {
		if clients[i], err = f.open(ctx, dsn); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, clients[i].close()) }()
		keys[i] = namespace.Keyed([]byte(secret)).Key("ann")
	}
	first, lock, err := race(ctx, clients, keys)
	if err != nil {
		return nil, err
	}
	second := 1 - first
	if err := otherSecret(clients[second].TryLock(ctx, keys[second])); err != nil {
		return nil, err
	}
	if err := errors.Join(lock.Err(), lock.Unlock()); err != nil {
		return nil, unexpected("the fleet that was there first", err)
	}
	if err := otherSecret(clients[second].TryLock(ctx, keys[second])); err != nil {
		return nil, err
	}
	if err := clients[first].Close(); err != nil {
		return nil, err
	}
	return nil, free(ctx, clients[second], keys[second], 2*time.Second)
}

// race has both clients ask at the same moment, until one of them has its key.
func race(ctx context.Context, clients [2]*client, keys [2]sqllock.Key) (winner int, lock *sqllock.Lock, err error) {
	type answer struct {
		lock *sqllock.Lock
		err  error
	}
	err = fleet.Poll(ctx, 10*time.Second, "one of two fleets to be served", func(ctx context.Context) (bool, error) {
		var answers [2]chan answer
		for i := range clients {
			answers[i] = make(chan answer, 1)
			go func() {
				lock, err := clients[i].TryLock(ctx, keys[i])
				answers[i] <- answer{lock, err}
			}()
		}
		for i := range answers {
			a := <-answers[i]
			switch {
			case a.err == nil && lock != nil:
				return false, violation("two fleets with different secrets hold the keys of one name")
			case a.err == nil:
				winner, lock = i, a.lock
			case !errors.Is(a.err, sqllock.ErrNotExclusive):
				return false, a.err
			}
		}
		return lock != nil, nil
	})
	return winner, lock, asViolation(err)
}

// otherSecret checks the result of a call with another fleet's secret.
func otherSecret(lock *sqllock.Lock, err error) error {
	if err == nil {
		return errors.Join(violation("two fleets with different secrets are served beside each other"), lock.Unlock())
	}
	if !errors.Is(err, sqllock.ErrNotExclusive) {
		return unexpected("another fleet's secret, but not ErrNotExclusive", err)
	}
	return nil
}
