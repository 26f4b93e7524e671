package faults

import (
	"context"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A diary is a history in memory: what clients saw of a place where the fleet is
// not.
type eventLog struct {
	mu     sync.Mutex // protects what follows
	events []history.Event
	last   int64 // number of a lock or a write
}

func (d *eventLog) note(e history.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// number is the next one for a lock or a write.
func (d *eventLog) number() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last
}

// take returns what was noted since it was called last. Numbers go on.
func (d *eventLog) take() []history.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	events := d.events
	d.events = nil
	return events
}

// A kept is a lock while it is kept, and its diary. It is for one goroutine.
type loggedLock struct {
	*worker.ObservedLock
	log *eventLog
}

// keep begins to note what is seen of lock, which was granted to a client.
func (d *eventLog) record(process int, lock *sqllock.Lock) *loggedLock {
	return &loggedLock{worker.Observe(lock, process, d.number(), false), d}
}

// recordListening is keep by a client that relies on the lock's context alone.
func (d *eventLog) recordListening(process int, lock *sqllock.Lock) *loggedLock {
	return &loggedLock{worker.Observe(lock, process, d.number(), true), d}
}

// stay keeps the lock until it is lost or ctx has ended.
func (k *loggedLock) hold(ctx context.Context) {
	if k.Hold.Listens {
		k.Listen(ctx)
		return
	}
	tick := time.NewTicker(worker.LookEvery)
	defer tick.Stop()
	for k.Look() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// looksOn is how long one who has lost a lock looks on, until its Session has had
// other connections.
const looksOn = time.Second

// end is giveBack after a while of looking on, if the lock was lost.
func (k *loggedLock) end(ctx context.Context) {
	if k.Told() {
		k.LookOn(ctx, looksOn)
	}
	k.giveBack()
}

// giveBack ends the lock and what is noted of it.
func (k *loggedLock) giveBack() {
	hold := k.GiveBack()
	k.log.note(history.Event{Hold: &hold})
}
