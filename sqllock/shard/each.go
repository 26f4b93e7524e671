package shard

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// groups lets package ratelimit acquire one key of each of several groups in
// one call, or none: see [inside.TryEach].
type groups = inside.Groups

var (
	errSeveralShards = errors.New("shard: several levels need all keys on one shard: choose the shard by the tenant, and keep its levels there")
	errNoEach        = errors.New("shard: several levels need shards that are Sessions")
)

// tryEach acquires one key of each group, or none. All keys must belong to one
// shard: several databases cannot take all keys or none in one statement.
// Otherwise the error says so.
func (s *Locker) tryEach(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error) {
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
	each := inside.GroupsOf(s.shards[max(shard, 0)].Locker)
	if each == nil {
		return nil, errNoEach
	}
	return inside.TryEach[sqllock.Key, sqllock.Locks](ctx, each, groups)
}
