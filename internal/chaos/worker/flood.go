package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// floodAtOnce is how many callers of a flood are under way at the same time.
const floodAtOnce = 500

// flood makes calls on command until draining ends.
func (w *work) flood(draining context.Context, floods <-chan int) {
	for {
		select {
		case n := <-floods:
			var callers sync.WaitGroup
			for i := range floodAtOnce {
				callers.Go(func() {
					rng := rand.New(rand.NewPCG(w.config.Seed, uint64(1000+i)))
					for range n / floodAtOnce {
						w.giveUp(rng)
						w.counts.flooded.Add(1)
					}
				})
			}
			callers.Wait()
		case <-draining.Done():
			return
		}
	}
}

// giveUp makes a call and cancels it before, during or after it is under way. A
// grant that was faster goes back at once. Its keys are not those of other
// callers, and it is not in the history.
func (w *work) giveUp(rng *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(time.Duration(rng.Int64N(int64(5*time.Millisecond))), cancel)
	defer timer.Stop()
	if rng.IntN(10) == 0 {
		cancel()
	}
	key := floodKey(rng.IntN(floodKeys))
	take := w.session.TryLock
	if rng.IntN(2) == 0 {
		take = w.session.Lock
	}
	lock, err := take(ctx, key)
	switch {
	case err == nil:
		_ = lock.Unlock() // a loss shows in the session's statistics
	case errors.Is(err, context.Canceled):
		w.counts.cancelled.Add(1)
	}
	cancel()
}

// floodKeys is how many keys there are for floods.
const floodKeys = 1000

func floodKey(i int) sqllock.Key { return sqllock.Namespace("flood").Key(strconv.Itoa(i)) }

// FloodKeys returns the keys of floods.
func FloodKeys() (all []sqllock.Key) {
	for i := range floodKeys {
		all = append(all, floodKey(i))
	}
	return all
}
