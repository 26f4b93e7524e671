package locks

import (
	"context"
	"errors"

	"github.com/bsm/redislock"
)

type redislockLocks struct {
	client *redislock.Client
	close  func() error
}

func openRedislock(_ context.Context, env Env, _ int) (Locks, error) {
	client := newGoRedis(env)
	return &redislockLocks{client: redislock.New(client), close: client.Close}, nil
}

func openRedislockAutoPipeline(_ context.Context, env Env, _ int) (Locks, error) {
	client := newGoRedis(env)
	pipeline, err := client.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &redislockLocks{
		client: redislock.New(pipeline),
		close:  func() error { return errors.Join(pipeline.Close(), client.Close()) },
	}, nil
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
