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
)

// A Session is the Locker for a service: every lock of the process on one
// database connection, which it takes from a *sql.DB and keeps.
//
// While one statement is in flight, locks to take and to give back queue up,
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
	table   *table

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the goroutines of backends that are not stuck in a driver

	registrar  *registrar    // nil: without; who connects may change it, others only read it
	connecting chan struct{} // holds a token while a backend connects: one at a time
	strays     atomic.Int32  // of all backends but the first

	// protected by table.mu
	backends  []*backend    // at least one
	growAfter time.Duration // no other connection until then; 0: none has failed
	disputes  map[claim]dispute
	left      []dialect.Process // of lost connections: the server may still have them
	room      room              // in the server's lock table
	address   net.Addr          // where the last connection led to; nil: not known
	counters  counters
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
	s := &Session{db: db, options: newOptions(opts), connecting: make(chan struct{}, 1), disputes: make(map[claim]dispute)}
	if err := s.options.validate(); err != nil {
		return nil, err
	}
	s.table = newTable(s)
	s.table.asyncUnlock, s.table.disputed = s.options.async, s.disputed
	if s.options.registry != nil {
		s.registrar = newRegistrar(s.options)
		s.table.registers, s.table.sets = true, make(map[*ask]struct{})
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	first := newBackend(s)
	s.backends = []*backend{first}

	session, err := s.begin(ctx, first)
	if err != nil {
		if !s.options.lazy || !isUnavailable(err) || ctx.Err() != nil {
			s.cancel()
			return nil, err
		}
		first.away, first.wasLost = err, true
	}
	var l *lease
	if session != nil {
		l = first.serve(session)
	}
	s.tasks.Add(1)
	go first.run(l)
	return s, nil
}

// begin makes the first connection.
func (s *Session) begin(ctx context.Context, first *backend) (dialect.Session, error) {
	if err := first.learn(ctx); err != nil {
		return nil, fromDialect(err)
	}
	if err := s.options.validate(); err != nil { // what was right for another dialect
		return nil, err
	}
	session, err := first.connect(ctx, s.enrollFirst)
	return session, fromDialect(err)
}

// TryLock takes key, or fails: ErrHeld at once if somebody else holds it or is
// in line for it in this process, ErrUnavailable within a second if the
// database does not answer, ErrConfig if the Session lost its connection and the
// server rejects a new one, ErrCapacity, ErrNotExclusive, ErrClosed, or ctx's
// error.
func (s *Session) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return s.table.acquire(ctx, key, false)
}

// Lock waits for key until ctx ends. In this process, first come, first
// served; a lock given back goes to the next in line at once. After a second
// the key goes through the database again, so that other processes get their
// turn; across processes there is no order. Lock goes on waiting while the
// database is away. Its errors are ErrClosed and ctx's; the latter matches
// ErrUnavailable or ErrConfig too if the database was away when ctx ended, ErrCapacity
// if there was no room for another lock, or ErrNotExclusive
// if the key was not to be had for its secret (see [Namespace.Keyed]).
func (s *Session) Lock(ctx context.Context, key Key) (*Lock, error) {
	return s.table.acquire(ctx, key, true)
}

// TryAny takes the first free one of keys, in one round trip however many they
// are, or fails as TryLock does: with ErrHeld if none is free.
func (s *Session) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return s.table.acquireAny(ctx, keys, false)
}

// LockAny waits, as Lock does, until one of keys is free.
func (s *Session) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return s.table.acquireAny(ctx, keys, true)
}

// TryRLock takes key as one of several readers, or fails as TryLock does: with ErrHeld at once
// if somebody holds key alone, or waits for it in this process. While readers have it nobody
// gets it by TryLock or Lock; readers of this process share one lock in the database, and
// those after the first are let in without a question to it. It needs PostgreSQL's advisory
// locks: elsewhere the error matches [errors.ErrUnsupported].
//
// As with sync.RWMutex, a reader must not ask for the key again, alone or as a reader: somebody
// may have come to wait in between. In one process nobody who waits to have the
// key alone is overtaken by readers that come later; across processes there is no such order,
// and readers that never leave the key all at once keep it from being had alone. Fence
// refuses a reader's lock: what is fenced is writing.
func (s *Session) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	if err := s.readers(); err != nil {
		return nil, err
	}
	return s.table.acquireShared(ctx, key, false)
}

// RLock is TryRLock that waits until ctx ends, as Lock does.
func (s *Session) RLock(ctx context.Context, key Key) (*Lock, error) {
	if err := s.readers(); err != nil {
		return nil, err
	}
	return s.table.acquireShared(ctx, key, true)
}

// readers is errReaders if it is known that there are no readers' locks. While it is not, the first statement tells.
func (s *Session) readers() error {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if d := s.options.dialect; d != nil && !d.Traits().Readers {
		return errReaders
	}
	return nil
}

// TryLockAll takes all of keys or none, in one round trip, or fails as TryLock does: with
// ErrHeld if one of them is held. No order of keys and no crossing of sets leads to a deadlock: it
// tries, and the database looks at the keys of each set in one order, so that of two
// that want some of the same keys at the same moment one can get its own.
//
// So it is with PostgreSQL's advisory locks. On other databases, and in a lease table, the
// free keys of a set that is not complete are taken and given back in a second round trip: for that moment
// they are refused to others, and two such sets may refuse each other.
//
// A set is for one connection: of more keys than a statement may carry, or than WithMaxHeld, it is refused
// with ErrCapacity. On MySQL with a very small max_allowed_packet others' single keys may keep a set from its turn.
func (s *Session) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return s.table.acquireAll(ctx, keys)
}

// LockAll is TryLockAll that waits until ctx ends, with the errors of Lock, and ErrCapacity for a set that is too
// large. It keeps none of keys while it waits, and has no place in any line: it tries from time to time, and who
// waits for one key alone may come first.
func (s *Session) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return s.table.awaitAll(ctx, keys)
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
	case dialect.SQLite:
		return SQLite
	case dialect.MySQL:
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
	for _, b := range s.backends {
		if b.lease != nil {
			b.lease.retireLocked()
		}
	}
	s.table.mu.Unlock()
	for _, l := range locks {
		l.lose(endClosed)
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
	for e := range s.table.entries.all() {
		s.table.settleReplyLocked(e, errSessionClosed)
	}
	return nil
}

// Session is the source of its table: its keys are in the database, reached
// through backends.

func (s *Session) ask(e *entry) {
	b := s.placeLocked()
	if b.away != nil {
		s.table.refusedLocked(e, b.away)
		return
	}
	e.state, e.backend = queued, b
	b.tries = append(b.tries, e)
	b.notifyLocked()
}

func (s *Session) askGroup(a *ask) {
	if a.grouped {
		return
	}
	b := s.placeLocked()
	if b.away != nil {
		for _, e := range a.entries {
			if e != nil && e.state == idle {
				s.table.refusedLocked(e, b.away)
			}
		}
		return
	}
	a.grouped = true
	b.groups = append(b.groups, a)
	b.notifyLocked()
}

func (s *Session) giveBack(e *entry) {
	b := e.holds.lease.backend
	b.releases = append(b.releases, e)
	if b.away != nil { // nobody waits for it
		s.table.settleReplyLocked(e, b.away)
		b.signal()
		return
	}
	b.notifyLocked()
}

// away is why asking for e is in vain: on the connection on which it is under
// way, or for a new key, when e is nil, on the one that it would go to.
func (s *Session) away(e *entry) error {
	switch {
	case e == nil || e.state == idle:
		return s.pickLocked().away
	case e.holds.lease != nil:
		return e.holds.lease.backend.away
	default:
		return e.backend.away
	}
}

// settings is what a connection of s is opened with.
func (s *Session) settings() dialect.Settings {
	return dialect.Settings{
		Lease:            s.options.lease,
		StatementTimeout: s.options.trust(),
		Proof:            proofPatience,
		Socket:           s.options.socket,
	}
}

const proofPatience = 2 * time.Second

var (
	errMaxHeld  = fmt.Errorf("%w: the limit of WithMaxHeld", ErrCapacity)
	errReaders  = fmt.Errorf("sqllock: only PostgreSQL's advisory locks have readers' locks, TryRLock and RLock: %w", errors.ErrUnsupported)
	errManyKeys = fmt.Errorf("%w: more keys at once than may be held (WithMaxHeld), or than a statement may carry (max_allowed_packet)", ErrCapacity)
)
