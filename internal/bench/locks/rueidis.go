package locks

import (
	"context"
	"crypto/rand"

	"github.com/redis/rueidis"
)

var rueidisRelease = rueidis.NewLuaScript(compareAndDelete)

type rueidisLocks struct{ client rueidis.Client }

// openRueidis opens a client with options, to which it adds what every one has.
func openRueidis(options rueidis.ClientOption) func(context.Context, Env, int) (Locks, error) {
	return func(_ context.Context, env Env, _ int) (Locks, error) {
		options := options
		options.InitAddress, options.ForceSingleClient, options.DisableCache = []string{env.Redis}, true, true
		client, err := rueidis.NewClient(options)
		return &rueidisLocks{client: client}, err
	}
}

func (r *rueidisLocks) Close() error {
	r.client.Close()
	return nil
}

func (r *rueidisLocks) Acquire(ctx context.Context, name string) (Held, error) {
	token := rand.Text()
	err := r.client.Do(ctx, r.client.B().Set().Key(name).Value(token).Nx().Px(lease).Build()).Error()
	switch {
	case err == nil:
		return &rueidisLock{client: r.client, name: name, token: token}, nil
	case rueidis.IsRedisNil(err):
		return nil, ErrBusy
	}
	return nil, err
}

type rueidisLock struct {
	client      rueidis.Client
	name, token string
}

func (l *rueidisLock) Release(ctx context.Context) error {
	n, err := rueidisRelease.Exec(ctx, l.client, []string{l.name}, []string{l.token}).AsInt64()
	if err == nil && n == 0 {
		return errNotHeld
	}
	return err
}
