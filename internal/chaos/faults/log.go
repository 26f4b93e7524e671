package faults

import (
	"context"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An eventLog is a history in memory. It holds what clients see of servers that
// the fleet does not use.
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

// number returns a new number for a lock or a write.
func (d *eventLog) number() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	return d.last
}

// take returns the events since the last call of take. Numbers are not reused.
func (d *eventLog) take() []history.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	events := d.events
	d.events = nil
	return events
}

// A loggedLock is a lock that its holder observes, and the log for what it
// sees. It is for one goroutine.
type loggedLock struct {
	*worker.ObservedLock
	log *eventLog
}

// record begins to observe lock, which a client was just granted.
func (d *eventLog) record(process int, lock *sqllock.Lock) *loggedLock {
	return &loggedLock{worker.Observe(lock, process, d.number(), false, func() {}), d}
}

// recordListening is record for a client that relies on the lock's context
// alone.
func (d *eventLog) recordListening(process int, lock *sqllock.Lock) *loggedLock {
	return &loggedLock{worker.Observe(lock, process, d.number(), true, func() {}), d}
}

// hold holds the lock until it is lost or ctx has ended.
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

// looksOn is how long the holder of a lost lock goes on looking. By then its
// Session has had other connections.
const looksOn = time.Second

// end is giveBack. The holder of a lost lock first looks on for a while.
func (k *loggedLock) end(ctx context.Context) {
	if k.Told() {
		k.LookOn(ctx, looksOn)
	}
	k.giveBack()
}

// giveBack unlocks the lock and logs it.
func (k *loggedLock) giveBack() {
	hold := k.GiveBack()
	k.log.note(history.Event{Hold: &hold})
}
