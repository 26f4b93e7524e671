package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// probeUntil carries out probes until ctx ends: it takes each key that callers
// may have used, one after the other.
func (w *work) probeUntil(ctx context.Context, probes <-chan struct{}) {
	for {
		select {
		case <-probes:
			stuck := []int64{}
			for _, key := range allKeys(w.config.Keys) {
				if !w.isFree(ctx, key) {
					stuck = append(stuck, key.Int64())
				}
			}
			w.stuck.Store(&stuck)
		case <-ctx.Done():
			return
		}
	}
}

// probeWithin bounds the attempts to take one key that should be free.
const probeWithin = 30 * time.Second

// isFree takes key and gives it back. It tries again if the database does not
// respond, or the lock is lost: neither says that the key is taken.
func (w *work) isFree(ctx context.Context, key sqllock.Key) bool {
	limited, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	for {
		lock, err := w.session.Lock(limited, key)
		if err == nil {
			err = lock.Unlock()
		}
		if err == nil {
			return true
		}
		if Pause(limited, 20*time.Millisecond) != nil {
			return false
		}
	}
}

func numbers(keys []sqllock.Key) (all []int64) {
	for _, key := range keys {
		all = append(all, key.Int64())
	}
	return all
}

// allKeys returns every key and place that callers may use: n of plain callers,
// and all of the others.
func allKeys(n int) (all []sqllock.Key) {
	for _, some := range []struct {
		n   int
		key func(int) sqllock.Key
	}{{n, Key}, {readersKeys, readersKey}, {setsKeys, setsKey}} {
		for i := range some.n {
			all = append(all, some.key(i))
		}
	}
	for _, l := range levels {
		for id := range l.ids {
			for slot := range l.slots {
				all = append(all, l.ns.SlotKey(strconv.Itoa(id), slot))
			}
		}
	}
	return all
}
