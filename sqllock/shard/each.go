package shard

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

// eachLocker is a Locker that can take one key of each of several groups, as
// [*sqllock.Session] and [*sqllock.Memory] can.
type eachLocker interface {
	TryEach(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error)
}

var (
	errSeveralShards = errors.New("shard: TryEach needs all keys on one shard: choose the shard by the tenant, and keep its levels there")
	errNoEach        = errors.New("shard: TryEach needs shards that are Sessions")
)

// TryEach acquires one key of each group, or none, like [sqllock.Session.TryEach].
// All keys must belong to one shard: several databases cannot take all keys or
// none in one statement. Otherwise the error says so.
func (s *Locker) TryEach(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error) {
	shard := -1
	for _, keys := range groups {
		for _, key := range keys {
			of := s.Index(key)
			if shard >= 0 && of != shard {
				return nil, errSeveralShards
			}
			shard = of
		}
	}
	each, ok := s.shards[max(shard, 0)].Locker.(eachLocker)
	if !ok {
		return nil, errNoEach
	}
	return each.TryEach(ctx, groups)
}
