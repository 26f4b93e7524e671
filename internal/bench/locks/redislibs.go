package locks

import (
	"context"
	"errors"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

type redislockLocks struct {
	client *redislock.Client
	close  func() error
}

func openRedislock(_ context.Context, env Env, _ int) (Locks, error) {
	client := newGoRedis(env)
	return &redislockLocks{client: redislock.New(client), close: client.Close}, nil
}

func (r *redislockLocks) Close() error { return r.close() }

func (r *redislockLocks) Acquire(ctx context.Context, name string) (Held, error) {
	lock, err := r.client.Obtain(ctx, name, lease, nil)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, redislock.ErrNotObtained):
		return nil, ErrBusy
	}
	return nil, err
}

type redsyncLocks struct {
	redsync *redsync.Redsync
	close   func() error
}

func openRedsync(_ context.Context, env Env, _ int) (Locks, error) {
	client := newGoRedis(env)
	return &redsyncLocks{redsync: redsync.New(goredis.NewPool(client)), close: client.Close}, nil
}

func (r *redsyncLocks) Close() error { return r.close() }

func (r *redsyncLocks) Acquire(ctx context.Context, name string) (Held, error) {
	mutex := r.redsync.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1), redsync.WithTimeoutFactor(0.5))
	err := mutex.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		return (*redsyncLock)(mutex), nil
	case errors.As(err, &taken):
		return nil, ErrBusy
	}
	return nil, err
}

type redsyncLock redsync.Mutex

func (l *redsyncLock) Release(ctx context.Context) error {
	ok, err := (*redsync.Mutex)(l).UnlockContext(ctx)
	if err == nil && !ok {
		return errNotHeld
	}
	return err
}
