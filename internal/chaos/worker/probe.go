package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// probeUntil carries out probes until ctx ends.
func (w *work) probeUntil(ctx context.Context, probes <-chan struct{}) {
	for {
		select {
		case <-probes:
			stuck := w.probe(ctx)
			w.stuck.Store(&stuck)
		case <-ctx.Done():
			return
		}
	}
}

// probeWithin bounds the attempts to take one key that should be free.
const probeWithin = 30 * time.Second

// probe takes each key that callers may have used, one after the other, and
// returns the numbers of those that it could not take.
func (w *work) probe(ctx context.Context) (stuck []int64) {
	for _, key := range AllKeys(w.config.Keys) {
		if !w.isFree(ctx, key) {
			stuck = append(stuck, key.Int64())
		}
	}
	return stuck
}

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
		select {
		case <-time.After(20 * time.Millisecond):
		case <-limited.Done():
			return false
		}
	}
}

// AllKeys returns every key and place that callers may use: n of plain callers,
// and all of brisk and mixed ones and of services.
func AllKeys(n int) (all []sqllock.Key) {
	for i := range n {
		all = append(all, Key(i))
	}
	for i := range briskKeys {
		all = append(all, briskKey(i))
	}
	for i := range readersKeys {
		all = append(all, readersKey(i))
	}
	for i := range setsKeys {
		all = append(all, setsKey(i))
	}
	for i := range marksKeys {
		all = append(all, marksKey(i))
	}
	for i := range longKeys {
		all = append(all, longKey(i))
	}
	for i := range termKeys {
		all = append(all, termKey(i))
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

// stuckKeys are those that the last probe found.
func (w *work) stuckKeys() []int64 {
	if stuck := w.stuck.Load(); stuck != nil {
		return *stuck
	}
	return nil
}
