// Package redispeer is the limiter that people build by hand on Redis. It sets a
// key with a random token and a lifetime if there is none, and deletes it by a
// script that compares the token. The benchmarks compare it with ratelimit.
package redispeer

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrBusy is Acquire's error while another caller holds the id.
var ErrBusy = errors.New("redispeer: id is busy")

// releaseTimeout bounds the release, which the end of a request must not stop.
const releaseTimeout = time.Second

// A Limiter admits one request at a time for each id.
type Limiter struct {
	client redis.UniversalClient
	prefix string
	ttl    time.Duration
}

// New makes a Limiter whose keys begin with prefix and live for at most ttl. A
// caller that holds an id for longer loses it without notice. As in most limiters
// of this kind, nothing renews the key.
func New(client redis.UniversalClient, prefix string, ttl time.Duration) *Limiter {
	return &Limiter{client: client, prefix: prefix + ":", ttl: ttl}
}

var release = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)

// Acquire takes id, or returns ErrBusy. The caller must call give.
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
