package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/session"
)

// A Session is the Locker for a service. It keeps all locks of a process on one
// connection, which it takes from a *sql.DB.
//
// Requests and releases queue up while a statement is under way, and the next
// statement carries them all. So the rate does not depend on the number of
// connections. A Session opens another connection for each thousand locks held.
// For a moment it needs one more, to prove that locks exclude. Give it a small
// *sql.DB of its own, so that other work cannot fill the pool when the Session
// must reconnect.
//
// The server frees the locks of a process that is frozen or cut off after the
// lease (WithLease). The process gives them up before that. When the connection
// is lost, all locks on it end with ErrLost, and the Session opens another one
// by itself.
//
// On SQLite, and with WithLeaseTable, locks are rows with a lease. The Session
// then borrows a connection for each statement, and the loss of a connection
// costs no lock.
//
// The context of a caller never reaches the driver, because a cancelled query
// would end the connection with the locks of all callers.
//
// The methods are safe for concurrent use. Make a Session with [Open]: the zero
// value is not usable.
type Session struct {
	home
	groups
	named Dialect // of WithDialect
}

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
// a lease table one is enough. Which settings of the pool and of the address a
// database needs stands at its constant, such as [PostgreSQL] and [SQLite].
//
// Open panics if db is nil.
func Open(ctx context.Context, db *sql.DB, opts ...Option) (*Session, error) {
	if db == nil {
		panic("sqllock: Open needs a *sql.DB that is not nil")
	}
	o := newOptions(opts)
	if o.err != nil {
		return nil, o.err
	}
	engine, err := session.Open(ctx, db, o.Options)
	if err != nil {
		return nil, err
	}
	s := &Session{home: home{table: engine.Table.Table, session: engine}, named: o.named}
	s.groups = inside.GroupsBy(s.tryEach)
	return s, nil
}

// Close ends the Session and all its locks. Their contexts end with the cause
// ErrClosed.
//
// A waiting call returns ErrClosed. An Unlock that gets no response any more
// returns ErrUnavailable. The connections are destroyed, not put back into the
// pool, so the server frees the locks as soon as it notices. Close waits for
// its goroutines for at most a second. db stays open.
//
// Call it when nothing works under a lock any more: after [http.Server.Shutdown]
// has returned, and before the Close of db.
//
// Close returns nil. A second call does nothing.
func (s *Session) Close() error {
	s.session.Close()
	return nil
}

// Dialect returns the kind of database that the Session is on, as the argument
// of [Schema]. It is that of [WithDialect], or the one that Open has detected.
// With [WithLazyOpen] it is "" until the first connection, unless WithDialect
// was given.
func (s *Session) Dialect() Dialect {
	if d := s.session.Dialect(); d != nil {
		return Dialect(d.Traits().Name)
	}
	return s.named
}

// HeldFor returns how long key has been held, as far as a Session with
// [WithRegistry] knows. It is for an estimate, such as when to try again, and
// never for a decision about the lock.
//
// It does not block. A lock of this Session is known at once. The age of a lock
// of another process comes from the registry. A first call returns !ok, and has
// the age read in the background for later calls, which use it for two seconds.
// A second passes between two readings, each for all keys that were asked for
// since: a call soon after a reading leaves its key to the next call's. The
// registry has only locks that have lasted a heartbeat, of processes that live.
//
// Without WithRegistry it returns !ok. While there is no connection it reads
// nothing, and it opens none that WithIdleClose has closed.
func (s *Session) HeldFor(key Key) (age time.Duration, ok bool) { return s.session.HeldFor(key.id()) }

// useSecrets returns nil once keys may be requested under their secrets, or why
// not. A call that waits goes on while that may change.
func (s *Session) useSecrets(ctx context.Context, keys []Key, waits bool) error {
	done := session.Secret{}
	for _, k := range keys {
		secret := session.Secret{Namespace: string(k.namespace), Fingerprint: k.fingerprint}
		if k.fingerprint == 0 || secret == done {
			continue
		}
		if err := callError(ctx, s.session.UseSecret(ctx, secret, waits)); err != nil {
			s.table.Count(err)
			return err
		}
		done = secret
	}
	return nil
}
