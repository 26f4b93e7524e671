// Package redispeer is the limiter that people build by hand on Redis: a key
// with a random token and a lifetime, set if it is not there, and deleted by a
// script that compares the token. The benchmarks hold it against ratelimit.
package redispeer

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrBusy is Acquire's answer when somebody else holds the id.
var ErrBusy = errors.New("redispeer: id is busy")

// releaseTimeout bounds the release, which the end of a request must not stop.
const releaseTimeout = time.Second

// A Limiter admits one request at a time for each id.
type Limiter struct {
	client redis.UniversalClient
	prefix string
	ttl    time.Duration
}

// New makes a Limiter whose keys begin with prefix and live for ttl at the most.
// Who holds an id for longer has lost it and does not notice: nothing renews
// it, as in most limiters of this kind.
func New(client redis.UniversalClient, prefix string, ttl time.Duration) *Limiter {
	return &Limiter{client: client, prefix: prefix + ":", ttl: ttl}
}

var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// Acquire takes id, or answers ErrBusy. The caller must call give.
func (l *Limiter) Acquire(ctx context.Context, id string) (give func() error, err error) {
	key, token := l.prefix+id, rand.Text()
	ok, err := l.client.SetNX(ctx, key, token, l.ttl).Result()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrBusy
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		return release.Run(ctx, l.client, []string{key}, token).Err()
	}, nil
}
