package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// A TxLocker is a Locker that holds each lock on a transaction of its own. It
// works behind a transaction pooler such as PgBouncer. Each lock costs a
// connection of the pool, and a transaction that stays open as long as the lock
// is held.
//
// The work may use that transaction: [TxFromContext] returns it. Its commit
// ends the lock and makes the work permanent in one step. Unlock rolls back
// what has not been committed.
//
// The methods are safe for concurrent use. [PerTx] and [PerTxFunc] make a
// TxLocker: the zero value is not usable.
type TxLocker struct {
	home
	source txSource
	lease  time.Duration // 0: a transaction may be idle without end
	timed  *session.Table
}

// PerTx returns a TxLocker on db. It sends nothing to the database.
//
// Of opts it uses WithLease only. The server then ends a lock whose transaction
// has been idle for the lease, which ends the locks of a frozen process.
// Without WithLease such a lock stays until the server's TCP gives the
// connection up.
//
// PerTx panics if db is nil, or if the lease is too short or too long.
func PerTx(db *sql.DB, opts ...Option) *TxLocker {
	if db == nil {
		panic("sqllock: PerTx needs a *sql.DB that is not nil")
	}
	return newTxLocker("PerTx", func(ctx, life context.Context) (Tx, *sql.Conn, error) {
		conn, err := postgres.Borrow(ctx, db)
		if err != nil {
			return nil, nil, err
		}
		tx, err := postgres.Begin(life, conn)
		if err != nil {
			_ = conn.Close()
		}
		return tx, conn, err
	}, opts)
}

// PerTxFunc is [PerTx] for transactions that begin returns. They are those of
// another API, such as *sqlx.Tx, or need a setting first, such as an isolation
// level. [TxFrom] returns them to the work of the lock. For pgx see the module
// sqllock/pgxlatchkey.
//
// A call of begin returns a new transaction, and its own connection below it.
// Its ctx lives until the transaction has ended. If begin takes longer than
// five seconds, ctx is cancelled. begin is called from several goroutines at a
// time, and must not panic.
//
// PerTxFunc panics if begin is nil, or if the lease is too short or too long.
func PerTxFunc(begin func(ctx context.Context) (Tx, error), opts ...Option) *TxLocker {
	if begin == nil {
		panic("sqllock: PerTxFunc needs a function that is not nil")
	}
	return newTxLocker("PerTxFunc", func(_, life context.Context) (Tx, *sql.Conn, error) {
		tx, err := begin(life)
		if err == nil && tx == nil {
			err = errNoTx
		}
		return tx, nil, postgres.BeginFailure(err)
	}, opts)
}

// newTxLocker returns a TxLocker on source, for the constructor of that name.
func newTxLocker(constructor string, source txSource, opts []Option) *TxLocker {
	o := newOptions(opts)
	if o.LeaseSet && (o.Lease < session.MinLease || o.Lease > session.MaxLease) {
		panic("sqllock: " + constructor + " needs a lease from " + session.MinLease.String() + " to " + session.MaxLease.String())
	}
	p := &TxLocker{source: source}
	if o.LeaseSet {
		p.lease = o.Lease
	}
	p.timed = session.NewTable(keytable.Config{Wake: func() { go p.begin() }, NewHold: newHold},
		o.Timeout(), func() error { return session.ErrNoAnswer })
	p.table = p.timed.Table
	return p
}

// TryLock acquires key on a new transaction, without waiting for another
// holder. Its errors are these:
//   - ErrHeld: another caller holds key.
//   - ErrNotExclusive: the database is a standby, or is not PostgreSQL.
//   - ErrUnavailable: no response within a second, or no free connection.
//   - ErrConfig or ErrCapacity, as of a Session.
//   - The error of ctx.
func (p *TxLocker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return p.acquire(ctx, keytable.Want{}, key)
}

// Lock waits for key until ctx ends. In this process the first to come is the
// first to be served. Lock tries from time to time, and occupies no connection
// in between.
func (p *TxLocker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return p.acquire(ctx, keytable.Want{Waits: true}, key)
}

// TxFromContext returns the transaction on which a [TxLocker] of [PerTx] holds
// the lock that ctx carries, and whether there is one. Its commit ends the lock
// and makes the work permanent. Unlock rolls back what is not committed.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) { return TxFrom[*sql.Tx](ctx) }

// TxFrom is [TxFromContext] for the transactions of [PerTxFunc]. T is the type
// that its function returns. ok is false for a transaction of another type.
func TxFrom[T Tx](ctx context.Context) (tx T, ok bool) {
	if l, carried := FromContext(ctx); carried {
		if holder, isTx := l.hold.Owner().Of.(*txHolder); isTx {
			tx, ok = holder.tx.(T)
		}
	}
	return tx, ok
}

// begin tries the keys that are queued, each on a new transaction. No caller's
// context reaches a transaction that may hold a lock.
func (p *TxLocker) begin() {
	for {
		holder, b := &txHolder{}, &keytable.Batch{}
		holder.owner = keytable.Owner{Of: holder}
		holder.owner.Wake = func() { go p.end(holder) }
		if !p.table.Prepare(&holder.owner, oneKey, b) {
			return
		}
		go func() {
			free, err := p.beginTx(holder, session.DBKey(b.Looks[0].Keys[0].ID(), keytable.Exclusive))
			if err != nil {
				p.table.Reconcile(&holder.owner, b, session.Now(), func(keytable.ID, keytable.Mode) bool { return false }, err)
			} else {
				if free {
					b.Looks[0].Won = append(b.Looks[0].Won, 0)
				}
				p.table.Complete(&holder.owner, b, session.Now())
			}
			p.timed.Look()
		}()
	}
}

// end rolls back the transaction of holder.
func (p *TxLocker) end(holder *txHolder) {
	var b keytable.Batch
	if !p.table.Prepare(&holder.owner, releasesOnly, &b) {
		return
	}
	if err := holder.rollBack(); err != nil {
		p.table.Lose(&holder.owner, &b, err) // its hold has ended
	} else {
		p.table.Complete(&holder.owner, &b, session.Now())
	}
}

// releasesOnly has a batch carry one release.
var releasesOnly = keytable.Limits{Keys: 1, ReleasesOnly: true}

// beginTx begins a transaction, and tries key on it. If key is not free, or
// after an error, no transaction is left.
func (p *TxLocker) beginTx(h *txHolder, key dialect.Key) (free bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound.Of(dialect.ConnectTimeout))
	defer cancel()
	// The transaction outlives ctx, but not a server that never answers BEGIN.
	life, endLife := context.WithCancel(context.Background())
	tooLong := context.AfterFunc(ctx, endLife)
	tx, conn, err := p.source(ctx, life)
	tooLong()
	if err != nil {
		endLife()
		return false, attemptError(dialect.Fail(err))
	}
	h.tx, h.conn, h.cancel = tx, conn, endLife
	free, err = postgres.TryXact(ctx, tx, key)
	if free && err == nil && p.lease > 0 {
		err = postgres.SetIdleTimeout(ctx, tx, p.lease)
	}
	if free && err == nil {
		return true, nil
	}
	_ = h.rollBack()
	if err != nil {
		err = attemptError(err)
	}
	return false, err
}

// attemptError returns err of an attempt to acquire a key. The connection is
// the TxLocker's own, so a closed one was lost. ErrClosed would mean that
// another attempt is pointless.
func attemptError(err error) error {
	err = session.InTime(err)
	var failure *dialect.Failure
	if errors.As(err, &failure) && failure.Kind == dialect.Closed {
		err = &dialect.Failure{Kind: dialect.Gone, Reason: "the connection was lost"}
	}
	return session.FromDialect(err)
}

// A txSource begins a transaction that lives no longer than life. ctx bounds the
// wait for a connection. It returns the connection if that is to be closed after
// the transaction.
type txSource func(ctx, life context.Context) (Tx, *sql.Conn, error)

// A txHolder is the transaction that holds a lock.
type txHolder struct {
	tx     Tx
	conn   *sql.Conn // closed after tx; nil: tx does it
	owner  keytable.Owner
	cancel context.CancelFunc // of the context that tx lives in, for a driver that is stuck
}

// rollBack releases the lock. It returns nil if the lock was held until now, or
// until its user ended the transaction.
func (h *txHolder) rollBack() error {
	tooLong := time.AfterFunc(bound.Of(dialect.ConnectTimeout), h.cancel)
	err := h.tx.Rollback()
	if h.conn != nil {
		_ = h.conn.Close()
	}
	tooLong.Stop()
	h.cancel()
	if err == nil || errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return ErrLost
}

var errNoTx = dialect.Misconfigured("the function of PerTxFunc returned no transaction and no error")
