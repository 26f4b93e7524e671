package ratelimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Stand-in until branch levels is merged.

type Level struct {
	Limiter *Limiter
	ID      string
}

var ErrPolicy = errors.New("ratelimit: a function of the policy failed")

func AcquireAll(ctx context.Context, levels ...Level) (sqllock.Locks, error) {
	for i, a := range levels {
		for _, b := range levels[:i] {
			if a.Limiter.ns == b.Limiter.ns && a.ID == b.ID {
				return nil, a.Limiter.Refuse(ctx, fmt.Errorf("%w: it is on two levels", ErrBadID))
			}
		}
	}
	locks := make(sqllock.Locks, len(levels))
	for i, l := range levels {
		lock, err := l.Limiter.Acquire(ctx, l.ID)
		if err != nil {
			for j := range i {
				_ = locks[j].Unlock()
			}
			return nil, err
		}
		locks[i] = lock
	}
	return locks, nil
}
