package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Open returns a Session on db. It connects, and proves that locks exclude on
// this very database.
//
// The errors say what to change:
//   - ErrNotExclusive: db leads to a transaction pooler, a standby, or a server
//     that only resembles PostgreSQL.
//   - ErrConfig: a person must correct something, such as a wrong password.
//   - ErrUnavailable: the database is away (but see WithLazyOpen).
//   - Another error: an option is wrong, or this database does not support it.
//
// ctx bounds Open only. The pool of db must allow two connections or more. For
// a lease table one is enough.
//
// Open panics if db is nil.
func Open(ctx context.Context, db *sql.DB, opts ...Option) (*Session, error) {
	if db == nil {
		panic("sqllock: Open needs a *sql.DB that is not nil")
	}
	s := &Session{db: db, options: newOptions(opts), connecting: make(chan struct{}, 1), conflicts: make(map[secretCheck]secretConflict), counters: newCounters()}
	if err := s.options.validate(); err != nil {
		return nil, err
	}
	s.table = newKeyTable(s)
	s.table.listen = s.listenLocked
	s.table.asyncUnlock = s.options.async
	s.table.tryTimeout = s.options.timeout
	if s.options.registry != nil {
		s.registrar = newRegistrar(s.options)
		s.ages.read = s.agesInRegistry
		s.table.registers, s.table.waitingSets = true, make(map[*request]struct{})
		s.table.noteAfter = s.options.heartbeat / 2
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := newSlot(s)
	s.slots = []*slot{first}

	session, err := s.connectFirst(ctx, first)
	if err != nil {
		if !s.options.lazy || !isUnavailable(err) || ctx.Err() != nil {
			s.cancel()
			return nil, err
		}
		first.away, first.wasLost = err, true
	}
	var c *connection
	if session != nil {
		c = first.serve(session)
	}
	s.tasks.Add(1)
	go first.keepConnected(c)
	return s, nil
}

// connectFirst makes the first connection. It validates the options again,
// because some depend on the dialect, which is known only now.
func (s *Session) connectFirst(ctx context.Context, first *slot) (dialect.Session, error) {
	if err := first.learnDialect(ctx); err != nil {
		return nil, fromDialect(err)
	}
	if err := s.options.validate(); err != nil { // what was right for another dialect
		return nil, err
	}
	session, err := first.connect(ctx, s.enrollFirst)
	return session, fromDialect(err)
}

// Close ends the Session and all its locks. Their contexts end with the cause
// ErrClosed.
//
// A waiting call returns ErrClosed. An Unlock that gets no response any more
// returns ErrUnavailable. The connections are destroyed, not put back into the
// pool, so the server frees the locks as soon as it notices. Close waits for
// its goroutines for at most a second. db stays open.
//
// Close returns nil. A second call does nothing.
func (s *Session) Close() error {
	s.table.mu.Lock()
	if s.table.closed {
		s.table.mu.Unlock()
		return nil
	}
	locks := s.table.closeLocked()
	for _, sl := range s.slots {
		if sl.conn != nil {
			sl.conn.markDeadLocked()
		}
	}
	ended := endAllLocked(locks, endClosed)
	s.table.mu.Unlock()
	ended.announce()
	s.cancel()

	done := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(done)
	}()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C: // a driver is stuck; its connection ends when it returns
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for k := range s.table.keys.all() {
		s.table.replyLocked(k, errSessionClosed)
	}
	return nil
}

// Dialect returns the kind of database that the Session is on, as the argument
// of [Schema]. It is that of [WithDialect], or the one that Open has detected.
// With [WithLazyOpen] it is "" until the first connection, unless WithDialect
// was given.
func (s *Session) Dialect() Dialect {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.options.dialect == nil {
		return s.options.named
	}
	return Dialect(s.options.dialect.Traits().Name)
}
