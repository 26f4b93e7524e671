package main

import (
	"context"
	"runtime"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
)

// onOneProcessor is pairs with one processor for all that the client does, so that
// the servers have the others to themselves, as on machines of their own.
func onOneProcessor(ctx context.Context, b *bench) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	contenders := locks.Named(locks.KitPgx, locks.KitPQ, locks.PerConnectionPgx, "connection per lock, pgxpool", locks.PerConnectionPQ,
		"connection per lock, lib/pq, binary_parameters", "go-redis", "go-redis AutoPipeline", "go-redis AutoPipeline, full duplex",
		"rueidis", locks.RueidisTuned)
	for _, callers := range []int{1, 8, 64, 512} {
		if err := b.interleave(ctx, "one processor", b.pairContestants(contenders, b.env, callers)); err != nil {
			return err
		}
	}
	return nil
}
