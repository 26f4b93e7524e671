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

func redisClients() []Contender {
	return []Contender{
		{
			Name: "go-redis", Family: Redis, Open: openGoRedis,
			Setup: "SET name token NX PX, and a script by its SHA that compares and deletes; " + redisPoolSetup,
		},
		{
			Name: "go-redis AutoPipeline", Family: Redis, Open: openAutoPipeline(nil),
			Setup: "The same two commands on the blocking face of AutoPipeline, at its defaults: one ordered stream of batches.",
		},
		{
			Name: "go-redis AutoPipeline, full duplex", Family: Redis,
			Open:  openAutoPipeline(&redis.AutoPipelineOptions{FullDuplex: true}),
			Setup: "The same with FullDuplex, which is meant for networks with a delay.",
		},
		{
			Name: "rueidis", Family: Redis, Open: openRueidis(rueidis.ClientOption{}),
			Setup: "The same two commands; pipelines by itself. At its defaults, but without its cache: four connections.",
		},
		{
			Name: RueidisTuned, Family: Redis,
			Open: openRueidis(rueidis.ClientOption{PipelineMultiplex: 1, MaxFlushDelay: 20 * time.Microsecond}),
			Setup: "The same with two connections (PipelineMultiplex 1) and with MaxFlushDelay at the 20 µs that its documentation names: " +
				"the fastest of twelve settings tried on two cores for 64 callers and more, slower than the defaults for 8.",
		},
		{
			Name: "redislock", Family: Redis, Open: openRedislock,
			Setup: "bsm/redislock on go-redis; its Obtain and Release are scripts by their SHA; " + redisPoolSetup,
		},
		{
			Name: "redislock, AutoPipeline", Family: Redis, Open: openRedislockAutoPipeline,
			Setup: "The same on go-redis's AutoPipeline, at its defaults.",
		},
		{
			Name: "redsync", Family: Redis, Open: openRedsync,
			Setup: "go-redsync on one node, by go-redis; WithTries(1); " + redisPoolSetup,
		},
	}
}

// delayedRedisPool is how many connections a go-redis client has behind a
// network with a delay, where each makes a few hundred pairs per second.
const delayedRedisPool = 256

const redisPoolSetup = "a pool of the library's own size, 10 connections for each core, which was faster than 90 or 512 on two cores; " +
	"256 where the network has a delay."

func newGoRedis(env Env) *redis.Client {
	options := &redis.Options{Addr: env.Redis}
	if env.Delayed {
		options.PoolSize = delayedRedisPool
	}
	return redis.NewClient(options)
}

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

// openAutoPipeline opens AutoPipeline; nil is its own defaults.
func openAutoPipeline(options *redis.AutoPipelineOptions) func(context.Context, Env, int) (Locks, error) {
	return func(ctx context.Context, env Env, _ int) (Locks, error) {
		client := newGoRedis(env)
		pipeline, err := client.AutoPipelineWithOptions(options) // the first call for a client decides: a second one's options are ignored
		if err == nil {
			err = goRedisRelease.Load(ctx, client).Err()
		}
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return &goRedisLocks{
			commands: pipeline,
			close:    func() error { return errors.Join(pipeline.Close(), client.Close()) },
		}, nil
	}
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
