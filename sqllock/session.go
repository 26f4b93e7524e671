package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
)

// A Session is the Locker for a service: every lock of the process on one
// database connection, which it takes from a *sql.DB and keeps.
//
// While one statement is under way, locks to take and to give back queue up,
// and go together in the next: the rate does not depend on the number of
// connections. The Session takes another connection for each thousand locks
// held only, and one more for a moment while it opens one, to prove on both
// that locks exclude. Give it a small *sql.DB of its own, so that work that
// fills the pool cannot keep it from reconnecting.
//
// The server frees the locks of a process that is frozen or cut off after a
// lease (WithLease), and the process gives them up before that. When the
// connection is lost, all locks on it end together with ErrLost, and the
// Session opens another one by itself.
//
// With a lease table (on SQLite, or with WithLeaseTable) locks are rows instead, which the Session's row
// gives a lease: it borrows a connection for each statement, and what happens to
// connections costs no lock.
//
// A caller's context never reaches the driver: cancelling a query would end the
// connection with everybody's locks.
type Session struct {
	db      *sql.DB
	options options
	table   *keyTable

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the goroutines of slots that are not stuck in a driver

	registrar  *registrar    // nil: without; who connects may change it, others only read it
	connecting chan struct{} // holds a token while a slot connects: one at a time
	abandoned  atomic.Int32  // of all slots but the first

	// protected by table.mu
	slots         []*slot       // at least one
	growAfter     time.Duration // no other connection until then; 0: none has failed
	conflicts     map[secretCheck]secretConflict
	leftProcesses []dialect.Process // of lost connections: the server may still have them
	room          room              // in the server's lock table
	address       net.Addr          // where the last connection led to; nil: not known
	counters      counters
}

// Open makes a Session on db. It connects, and proves that locks exclude on
// this very database: it fails with ErrNotExclusive, and says what to change,
// behind a transaction pooler, on a standby, on a server that only looks like
// PostgreSQL; with ErrUnavailable if the database is away (but see
// WithLazyOpen). It fails with ErrConfig for what only a person can mend, such as a
// wrong password. ctx bounds Open only. db must allow two connections or more.
//
// Open panics if db is nil.
func Open(ctx context.Context, db *sql.DB, opts ...Option) (*Session, error) {
	if db == nil {
		panic("sqllock: Open needs a *sql.DB that is not nil")
	}
	s := &Session{db: db, options: newOptions(opts), connecting: make(chan struct{}, 1), conflicts: make(map[secretCheck]secretConflict)}
	if err := s.options.validate(); err != nil {
		return nil, err
	}
	s.table = newKeyTable(s)
	s.table.asyncUnlock = s.options.async
	if s.options.registry != nil {
		s.registrar = newRegistrar(s.options)
		s.table.registers, s.table.waitingSets = true, make(map[*request]struct{})
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

// connectFirst makes the first connection.
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

// Dialect returns which kind of database the Session is on: the argument of
// [Schema] and the like. It is the one of [WithDialect], or the one that Open
// found. Before the first connection of [WithLazyOpen] it is "" if it was not
// given.
func (s *Session) Dialect() Dialect {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	switch s.options.dialect.(type) {
	case nil:
		return s.options.named
	case leasetable.SQLite:
		return SQLite
	case mysql.Dialect:
		return MySQL
	}
	return PostgreSQL
}

// Close ends the Session. Locks still held end, their contexts with cause
// ErrClosed; who waits gets ErrClosed, and an Unlock under way that gets no answer
// any more ErrUnavailable. Its connections are destroyed, not pooled, and so the
// server frees what was locked, as soon as it hears of that. Close waits for it,
// about a second at the most. db stays open. Called again it does nothing.
func (s *Session) Close() error {
	s.table.mu.Lock()
	if s.table.closed {
		s.table.mu.Unlock()
		return nil
	}
	locks := s.table.closeLocked()
	for _, sl := range s.slots {
		if sl.conn != nil {
			sl.conn.retireLocked()
		}
	}
	s.table.mu.Unlock()
	for _, l := range locks {
		l.endAs(endClosed)
	}
	s.cancel()

	ended := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(ended)
	}()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C: // a driver is stuck; its connection ends when it returns
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	for k := range s.table.keys.all() {
		s.table.replyLocked(k, errSessionClosed)
	}
	return nil
}

// settings is what a connection of s is opened with.
func (s *Session) settings() dialect.Settings {
	return dialect.Settings{
		Lease:            s.options.lease,
		StatementTimeout: s.options.validFor(),
		Proof:            proofTimeout,
		Socket:           s.options.socket,
	}
}

const proofTimeout = 2 * time.Second

var (
	errMaxHeld  = fmt.Errorf("%w: the limit of WithMaxHeld", ErrCapacity)
	errReaders  = fmt.Errorf("sqllock: only PostgreSQL's advisory locks have readers' locks, TryRLock and RLock: %w", errors.ErrUnsupported)
	errManyKeys = fmt.Errorf("%w: more keys at once than may be held (WithMaxHeld), or than a statement may carry (max_allowed_packet)", ErrCapacity)
)
