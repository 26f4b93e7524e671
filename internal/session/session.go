// Package session serves a key table from a database. It keeps connections,
// sends the table's batches and heartbeats on them, and knows how long their
// locks are certainly held.
//
//	s, err := session.Open(ctx, db, options)
//	hold, err := s.Table.Acquire(ctx, want, id)
//
// A plain request meets two kinds of statement: the batch, and the heartbeat.
// What else a connection has to do is an errand: see type errand.
package session

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A Session keeps all locks of a process on one connection, or a few.
//
// Invariant: mu is never held while a statement is under way. It may be held
// while the table is locked anew, and never the other way round.
type Session struct {
	Table *Table

	db      *sql.DB
	options Options // of them the dialect, and what depends on it, is set under mu while there is no connection
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // the goroutines that are not stuck in a driver

	registrar  *registrar
	connecting chan struct{} // holds a token while a slot connects: one at a time
	inDriver   atomic.Int32  // of all slots but the first
	queued     atomic.Int64  // how much was queued since the last batch, about
	wakes      atomic.Pointer[[]chan struct{}]

	mu        sync.Mutex // protects what follows, and each slot, connection and errand
	slots     []*slot    // at least one
	closed    bool
	growAfter time.Duration // no other connection until then; 0: none has failed
	used      time.Duration // when a batch with keys was last answered, or a connection began to serve
	left      leftProcesses
	room      room
	secrets   map[Secret]*secretState
	counters  Counters
	ages      heldAges
	waits     map[*Wait]struct{}
}

// Open returns a Session on db. See package sqllock.
func Open(ctx context.Context, db *sql.DB, o Options) (*Session, error) {
	s := &Session{
		db: db, options: o, connecting: make(chan struct{}, 1), counters: newCounters(),
		secrets: make(map[Secret]*secretState), waits: make(map[*Wait]struct{}),
	}
	if err := s.options.Validate(); err != nil {
		return nil, err
	}
	s.Table = NewTable(keytable.Config{
		Wake: s.wake, NewHold: o.NewHold, HandOver: Fairness, YieldFor: YieldFor, AsyncUnlock: o.AsyncUnlock,
	}, o.timeout, func() error { return ErrNoAnswer })
	if o.Registry {
		s.registrar = newRegistrar(o)
		s.ages = newHeldAges(s.agesInRegistry)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := newSlot(s)
	s.slots = []*slot{first}
	s.wakes.Store(&[]chan struct{}{first.wake})
	session, err := first.connect(ctx, true)
	if err != nil {
		if !o.Lazy || !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
			s.cancel()
			return nil, err
		}
		first.away, first.wasLost = err, true
		s.Table.SetAway(err)
	}
	var c *connection
	if session != nil {
		c = first.serve(session)
	}
	s.tasks.Add(1)
	go first.keepConnected(c)
	return s, nil
}

// Close ends the Session and all its locks. See package sqllock.
func (s *Session) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	ends := s.Table.Close(keytable.ErrClosed)
	for _, sl := range s.slots {
		if sl.conn != nil {
			sl.conn.markDead()
		}
	}
	s.mu.Unlock()
	ends.Announce()
	s.cancel()
	done := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second): // a driver is stuck; its connection ends when it returns
	}
	s.Table.AnswerAll(errClosed)
}

// wake tells the goroutines of all connections that something was queued. The
// table is locked.
func (s *Session) wake() {
	s.queued.Add(1)
	for _, wake := range *s.wakes.Load() {
		signal(wake)
	}
}

// signal leaves a token in a channel of one, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Dialect returns the dialect, or nil while it is not known.
func (s *Session) Dialect() dialect.Dialect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.options.Dialect
}

// Timeout returns how long callers wait for a response.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.options.timeout
}
