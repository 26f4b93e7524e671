package main

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// deleteOwn deletes a key if it holds the caller's token still.
var deleteOwn = rueidis.NewLuaScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

// onRueidis sets a key with a token and a lifetime if there is none, and deletes
// it by a script that compares the token.
func onRueidis(options rueidis.ClientOption) func(context.Context, *servers, int) (*locks, error) {
	return func(_ context.Context, s *servers, _ int) (*locks, error) {
		options := options
		options.InitAddress, options.ForceSingleClient, options.DisableCache = []string{s.redis}, true, true
		client, err := rueidis.NewClient(options)
		if err != nil {
			return nil, err
		}
		acquire := func(ctx context.Context, name string) (func(context.Context) error, error) {
			token := rand.Text()
			err := client.Do(ctx, client.B().Set().Key(name).Value(token).Nx().Px(lease).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return nil, errBusy
			}
			return func(ctx context.Context) error {
				n, err := deleteOwn.Exec(ctx, client, []string{name}, []string{token}).AsInt64()
				if err == nil && n == 0 {
					return errNotHeld
				}
				return err
			}, err
		}
		return &locks{acquire, func() error { client.Close(); return nil }}, nil
	}
}

// newGoRedis opens a client with a pool of its own size, 10 connections for each
// core, which was faster than 90 or 512 on two cores.
func newGoRedis(s *servers) *redis.Client { return redis.NewClient(&redis.Options{Addr: s.redis}) }

func onRedislock(_ context.Context, s *servers, _ int) (*locks, error) {
	client := newGoRedis(s)
	locker := redislock.New(client)
	return &locks{close: client.Close, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		lock, err := locker.Obtain(ctx, name, lease, nil)
		switch {
		case err == nil:
			return lock.Release, nil
		case errors.Is(err, redislock.ErrNotObtained):
			return nil, errBusy
		}
		return nil, err
	}}, nil
}

func onRedsync(_ context.Context, s *servers, _ int) (*locks, error) {
	client := newGoRedis(s)
	locker := redsync.New(goredis.NewPool(client))
	return &locks{close: client.Close, acquire: func(ctx context.Context, name string) (func(context.Context) error, error) {
		mutex := locker.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1), redsync.WithTimeoutFactor(0.5))
		err := mutex.TryLockContext(ctx)
		if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
			return nil, errBusy
		}
		return func(ctx context.Context) error {
			ok, err := mutex.UnlockContext(ctx)
			if err == nil && !ok {
				return errNotHeld
			}
			return err
		}, err
	}}, nil
}
