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
	idleAfter   = 10 * time.Second       // without a viewer the poller ends after this time
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

// A poller looks at the locks for all viewers. It runs while there are viewers, and
// has at most one look under way.
//
// Invariant: mu protects the fields below it, and is not held during a look. A
// state is never changed after it was set.
type poller struct {
	look      lookFunc
	diagnosis *lockwatch.Diagnosis // of the goroutine of run
	closing   context.Context
	runs      sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	running  bool
	streams  int       // viewers with an open stream
	lastSeen time.Time // of the last request or end of a stream
	state    *state
	changed  chan struct{} // closed when the streams should show the state again
}

func newPoller(closing context.Context, look lookFunc, diagnosis *lockwatch.Diagnosis) *poller {
	nothing := lockwatch.NewView(new(lockwatch.Snapshot))
	return &poller{look: look, diagnosis: diagnosis, closing: closing, state: &state{view: nothing}, changed: make(chan struct{})}
}

// wait waits until the poller has ended, which it does after closing. No request
// starts it again.
func (p *poller) wait() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.runs.Wait()
}

// viewed notes a request and returns the state. If the state is old, viewed waits a
// moment for the look that the request has caused.
func (p *poller) viewed(ctx context.Context) *state {
	p.mu.Lock()
	p.lastSeen = time.Now()
	p.startLocked()
	p.mu.Unlock()
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

// current returns the state, and a channel that is closed when the streams should
// show it again.
func (p *poller) current() (*state, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.changed
}

// enter notes a viewer with a stream, and leave its end.
func (p *poller) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams++
	p.startLocked()
}

func (p *poller) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams--
	p.lastSeen = time.Now()
}

func (p *poller) startLocked() {
	if p.running || p.closed {
		return
	}
	p.running = true
	p.runs.Go(p.run)
}

// endsIdle reports whether there are no viewers, and notes in that case that the
// poller ends.
func (p *poller) endsIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams > 0 || time.Since(p.lastSeen) < idleAfter {
		return false
	}
	p.running = false
	return true
}

func (p *poller) set(s *state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

func (p *poller) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// run begins a look at each tick until there are no viewers. It wakes the streams
// when the result arrives, and at each tick that begins no look.
func (p *poller) run() {
	type result struct {
		snapshot *lockwatch.Snapshot
		err      error
	}
	results := make(chan result, 1)
	timer := time.NewTimer(tick) // not a Ticker, which makes up for a late tick with an early one
	defer timer.Stop()
	underWay := false
	for due := true; ; {
		switch now, _ := p.current(); {
		case due && underWay:
			p.wake()
		case due:
			next := *now
			next.asked, underWay = time.Now(), true
			p.set(&next)
			go func() {
				s, err := p.lookOnce()
				results <- result{s, err}
			}()
		}
		due = false
		select {
		case <-p.closing.Done():
			if underWay {
				<-results
			}
			return
		case r := <-results:
			underWay = false
			now, _ := p.current()
			p.set(now.after(r.snapshot, r.err, p.diagnosis))
			p.wake()
		case <-timer.C:
			timer.Reset(tick)
			if !underWay && p.endsIdle() {
				return
			}
			due = true
		}
	}
}

// lookOnce returns within lookTimeout, even if the driver is stuck: the look itself
// does. Close ends it at once.
func (p *poller) lookOnce() (*lockwatch.Snapshot, error) {
	ctx, cancel := context.WithTimeout(p.closing, lookTimeout)
	defer cancel()
	return p.look(ctx)
}
