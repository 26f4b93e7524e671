package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// compareAndDelete deletes a key if it holds the caller's token still.
const compareAndDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

// redisClients set a key with a token and a lifetime if there is none, and delete
// it by a script that compares the token. go-redis has a pool of its own size,
// 10 connections for each core, which was faster than 90 or 512 on two cores.
func redisClients() []Contender {
	// rueidis has four connections at its defaults. Tuned by hand it has two, and waits
	// 20 µs for more commands, as its documentation says. That was the fastest of
	// twelve settings tried on two cores for 64 callers and more. For 8 it is slower.
	tuned := rueidis.ClientOption{PipelineMultiplex: 1, MaxFlushDelay: 20 * time.Microsecond}
	return []Contender{
		{Name: GoRedis, Family: Redis, Open: openGoRedis},
		{Name: AutoPipeline, Family: Redis, Open: openAutoPipeline},
		{Name: Rueidis, Family: Redis, Open: openRueidis(rueidis.ClientOption{})},
		{Name: RueidisTuned, Family: Redis, Open: openRueidis(tuned)},
		{Name: "redislock", Family: Redis, Open: openRedislock},
		{Name: "redsync", Family: Redis, Open: openRedsync},
	}
}

func newGoRedis(env Env) *redis.Client { return redis.NewClient(&redis.Options{Addr: env.Redis}) }

// goRedisCommands is a client or an AutoPipeliner.
type goRedisCommands interface {
	redis.Scripter
	SetNX(ctx context.Context, key string, value any, expiration time.Duration) *redis.BoolCmd
}

var goRedisRelease = redis.NewScript(compareAndDelete)

type goRedisLocks struct {
	commands goRedisCommands
	close    func() error
}

func openGoRedis(ctx context.Context, env Env, _ int) (Locks, error) {
	client := newGoRedis(env)
	if err := goRedisRelease.Load(ctx, client).Err(); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &goRedisLocks{commands: client, close: client.Close}, nil
}

// openAutoPipeline opens go-redis's AutoPipeline at its defaults.
func openAutoPipeline(ctx context.Context, env Env, _ int) (Locks, error) {
	client := newGoRedis(env)
	pipeline, err := client.AutoPipeline()
	if err == nil {
		err = goRedisRelease.Load(ctx, client).Err()
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &goRedisLocks{commands: pipeline, close: func() error { return errors.Join(pipeline.Close(), client.Close()) }}, nil
}

func (g *goRedisLocks) Close() error { return g.close() }

func (g *goRedisLocks) Acquire(ctx context.Context, name string) (Held, error) {
	token := rand.Text()
	ok, err := g.commands.SetNX(ctx, name, token, lease).Result()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrBusy
	}
	return &goRedisLock{locks: g, name: name, token: token}, nil
}

type goRedisLock struct {
	locks       *goRedisLocks
	name, token string
}

func (l *goRedisLock) Release(ctx context.Context) error {
	n, err := goRedisRelease.Run(ctx, l.locks.commands, []string{l.name}, l.token).Int()
	if err == nil && n == 0 {
		return errNotHeld
	}
	return err
}
