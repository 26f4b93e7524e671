package lockui

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	tick        = time.Second            // the least time between the beginnings of two looks
	lookTimeout = 5 * time.Second        // of one look
	viewTimeout = 700 * time.Millisecond // a request waits for a look at most this long
)

type lookFunc func(ctx context.Context) (*lockwatch.Snapshot, error)

// errPoolFull is the error of a look that ended without an answer while all
// connections of the pool were in use.
var errPoolFull = errors.New("lockui: no answer in time, with all connections of the pool in use")

// newLook returns the look at db's locks.
func newLook(db *sql.DB, o options) lookFunc {
	var opts []lockwatch.InspectOption
	if o.schema != "" {
		opts = append(opts, lockwatch.WithSchema(o.schema))
	}
	if !o.names {
		opts = append(opts, lockwatch.WithoutNames())
	}
	inspector := lockwatch.NewInspector(db, opts...)
	return func(ctx context.Context) (*lockwatch.Snapshot, error) {
		s, err := inspector.Inspect(ctx)
		if stats := db.Stats(); err != nil && ctx.Err() != nil && stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
			err = errPoolFull
		}
		return s, err
	}
}

// A poller looks at the locks for all viewers, while there are some, and has at most
// one look under way.
//
// Invariant: mu protects the fields below it, and is not held during a look. A
// state is never changed after it was set.
type poller struct {
	look      lookFunc
	diagnosis *lockwatch.Diagnosis // of the look under way
	closing   context.Context
	looks     sync.WaitGroup

	mu    sync.Mutex
	begun time.Time // the last look
	state *state
	done  chan struct{} // closed when the look under way has ended
}

func newPoller(closing context.Context, look lookFunc, diagnosis *lockwatch.Diagnosis) *poller {
	nothing := lockwatch.NewView(new(lockwatch.Snapshot))
	return &poller{look: look, diagnosis: diagnosis, closing: closing, state: &state{view: nothing}}
}

// wait waits until the look under way has ended, which it does after closing. There
// is no other one.
func (p *poller) wait() {
	p.mu.Lock() // a viewer that did not see closing has begun its look
	p.mu.Unlock()
	p.looks.Wait()
}

// viewed notes a request and returns the state. If the state is old, viewed waits a
// moment for the look under way.
func (p *poller) viewed(ctx context.Context) *state {
	p.mu.Lock()
	p.beginLocked()
	s, done := p.state, p.done
	p.mu.Unlock()
	if !s.old() {
		return s
	}
	timer := time.NewTimer(viewTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	case <-p.closing.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// beginLocked begins a look, unless one is under way or has begun less than a tick
// ago.
func (p *poller) beginLocked() {
	if p.closing.Err() != nil || !p.state.asked.IsZero() || time.Since(p.begun) < tick {
		return
	}
	p.begun = time.Now()
	p.done = make(chan struct{})
	next, done := *p.state, p.done
	next.asked = p.begun
	p.state = &next
	p.looks.Go(func() {
		ctx, cancel := context.WithTimeout(p.closing, lookTimeout)
		defer cancel()
		snapshot, err := p.look(ctx) // the look itself ends in time, even if the driver is stuck
		after := next.after(snapshot, err, p.diagnosis)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state = after
		close(done)
	})
}
