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

	mu      sync.Mutex
	closed  bool
	kicked  time.Time // the last tick
	state   *state
	changed chan struct{} // closed when the streams should show the state again
}

func newPoller(closing context.Context, look lookFunc, diagnosis *lockwatch.Diagnosis) *poller {
	nothing := lockwatch.NewView(new(lockwatch.Snapshot))
	return &poller{look: look, diagnosis: diagnosis, closing: closing, state: &state{view: nothing}, changed: make(chan struct{})}
}

// wait waits until the look under way has ended, which it does after closing. There
// is no other one.
func (p *poller) wait() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.looks.Wait()
}

// kick begins a look, unless one has begun less than a tick ago. While one is under
// way it wakes the streams, which show how long that takes. Each viewer calls kick
// at least once a tick.
func (p *poller) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || time.Since(p.kicked) < tick {
		return
	}
	p.kicked = time.Now()
	if !p.state.asked.IsZero() {
		p.wakeLocked()
		return
	}
	next := *p.state
	next.asked = p.kicked
	p.state = &next
	p.looks.Go(func() {
		ctx, cancel := context.WithTimeout(p.closing, lookTimeout)
		defer cancel()
		snapshot, err := p.look(ctx) // the look itself ends in time, even if the driver is stuck
		after := next.after(snapshot, err, p.diagnosis)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state = after
		p.wakeLocked()
	})
}

func (p *poller) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeLocked()
}

// current returns the state, and a channel that is closed when the streams should
// show it again.
func (p *poller) current() (*state, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.changed
}

// viewed notes a request and returns the state. If the state is old, viewed waits a
// moment for the look that the request has caused.
func (p *poller) viewed(ctx context.Context) *state {
	p.kick()
	s, changed := p.current()
	timer := time.NewTimer(viewTimeout)
	defer timer.Stop()
	for before := s.looks; s.looks == before && s.old(); {
		select {
		case <-changed:
			s, changed = p.current()
		case <-timer.C:
			return s
		case <-ctx.Done():
			return s
		case <-p.closing.Done():
			return s
		}
	}
	return s
}

// next waits until changed is closed, and sees to it that it will be. It returns
// false if ctx or the page has ended before.
func (p *poller) next(ctx context.Context, changed <-chan struct{}) bool {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		p.kick()
		select {
		case <-changed:
			return true
		case <-ticker.C:
		case <-ctx.Done():
			return false
		case <-p.closing.Done():
			return false
		}
	}
}
