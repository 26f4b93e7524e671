package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
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
	source txSource
	lease  time.Duration // 0: a transaction may be idle without end
	table  *keyTable

	neighbour atomic.Pointer[dialect.Process] // of a Session in the same database: the last one that was looked for and found
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
	return newTxLocker("PerTx", txPool{db}, opts)
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
// A transaction may have a method ServerPID() int64, for the id of its server
// process. Then lockwatch sees whose lock a caller holds while it waits.
//
// PerTxFunc panics if begin is nil, or if the lease is too short or too long.
func PerTxFunc(begin func(ctx context.Context) (Tx, error), opts ...Option) *TxLocker {
	if begin == nil {
		panic("sqllock: PerTxFunc needs a function that is not nil")
	}
	return newTxLocker("PerTxFunc", txFunc(begin), opts)
}

// newTxLocker returns a TxLocker on source, for the constructor of that name.
func newTxLocker(constructor string, source txSource, opts []Option) *TxLocker {
	o := newOptions(opts)
	if o.leaseSet && (o.lease < minLease || o.lease > maxLease) {
		panic("sqllock: " + constructor + " needs a lease from " + minLease.String() + " to " + maxLease.String())
	}
	p := &TxLocker{source: source}
	if o.leaseSet {
		p.lease = o.lease
	}
	p.table = newKeyTable(p)
	p.table.handOver = 0
	p.table.timeout = o.timeout
	return p
}

// TryLock acquires key on a new transaction, without waiting for another
// holder. Its errors are these:
//   - ErrHeld: another caller holds key.
//   - ErrNotExclusive: the database is a standby.
//   - ErrUnavailable: the database does not respond within a second, or the
//     pool has no free connection.
//   - The error of ctx.
func (p *TxLocker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return p.table.acquire(ctx, key, want{})
}

// Lock waits for key until ctx ends. In this process the first to come is the
// first to be served. Lock tries from time to time, and occupies no connection
// in between.
func (p *TxLocker) Lock(ctx context.Context, key Key) (*Lock, error) {
	defer endWaits(noteDistantWaits(ctx, key, p.lookForSession))
	return p.table.acquire(ctx, key, want{waits: true})
}

// TxFromContext returns the transaction on which a [TxLocker] of [PerTx] holds
// the lock that ctx carries, and whether there is one. Its commit ends the lock
// and makes the work permanent. Unlock rolls back what is not committed.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) { return TxFrom[*sql.Tx](ctx) }

// TxFrom is [TxFromContext] for the transactions of [PerTxFunc]. T is the type
// that its function returns. ok is false for a transaction of another type.
func TxFrom[T Tx](ctx context.Context) (tx T, ok bool) {
	if l, carried := FromContext(ctx); carried && l.tx != nil {
		tx, ok = l.tx.tx.(T)
	}
	return tx, ok
}

// lookForSession looks, on a connection of its own, whether w is in the
// database of its Session.
func (p *TxLocker) lookForSession(w *distantWait) {
	if known := p.neighbour.Load(); known != nil && *known == w.process {
		w.noted()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound.Of(dialect.ConnectTimeout))
	defer cancel()
	if p.source.isNeighbour(ctx, w.process) {
		p.neighbour.Store(&w.process)
		w.noted()
	}
}

// serverProcess returns the process that has l, or 0 if it is not known.
func (p *TxLocker) serverProcess(l *Lock) int64 {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if holder := txKeyOf(l.state).holder; holder != nil {
		return holder.pid
	}
	return 0
}

// A txKey is what a TxLocker keeps for a key: it is the source of its own
// table. A goroutine sends each statement, so that no caller's context reaches
// a transaction that may hold a lock.
type txKey struct {
	plainKey
	state  keyState
	holder *txHolder // from the grant to the end
}

// txKeyOf returns what the TxLocker keeps for k.
func txKeyOf(k *keyState) *txKey { return k.own.(*txKey) }

func (k *txKey) equip(l *Lock) { l.tx = k.holder }
func (k *txKey) reset()        { k.holder = nil }

// newKey makes the memory of a key state.
func (p *TxLocker) newKey() *keyState {
	k := new(txKey)
	k.state.own = k
	return &k.state
}

// take requests the key of k on a new transaction.
func (p *TxLocker) take(k *keyState) {
	p.table.requestedLocked(k, exclusive)
	go func() {
		holder, err := p.beginTx(k.key)
		p.table.mu.Lock()
		defer p.table.mu.Unlock()
		if err != nil {
			p.table.deniedLocked(k, err)
		} else {
			txKeyOf(k).holder = holder
			p.table.grantedLocked(k, now())
		}
	}()
}

// takeGroup is never called: a TxLocker takes one key at a time.
func (p *TxLocker) takeGroup(*request)   {}
func (p *TxLocker) away(*keyState) error { return nil }

// giveBack rolls back the transaction that holds k.
func (p *TxLocker) giveBack(k *keyState) {
	k.phase = freeing
	holder := txKeyOf(k).holder
	go func() {
		err := holder.rollBack()
		p.table.mu.Lock()
		defer p.table.mu.Unlock()
		txKeyOf(k).holder = nil
		p.table.freedLocked(k, err)
	}()
}

// beginTx acquires key on a new transaction. key must not change meanwhile.
func (p *TxLocker) beginTx(key dialect.Key) (*txHolder, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound.Of(dialect.ConnectTimeout))
	defer cancel()
	// The transaction outlives ctx, but not a server that never answers BEGIN.
	life, endLife := context.WithCancel(context.Background())
	tooLong := context.AfterFunc(ctx, endLife)
	held, err := p.source.begin(ctx, life)
	tooLong()
	if err != nil {
		endLife()
		return nil, attemptError(dialect.Fail(err))
	}
	h := &txHolder{held, endLife}
	ok, err := postgres.TryXact(ctx, h.tx, key)
	if ok && err == nil && p.lease > 0 {
		err = postgres.SetIdleTimeout(ctx, h.tx, p.lease)
	}
	if ok && err == nil {
		return h, nil
	}
	_ = h.rollBack()
	if err == nil {
		return nil, ErrHeld
	}
	return nil, attemptError(err)
}

// attemptError returns err of an attempt to acquire a key. The connection is
// the TxLocker's own, so a closed one was lost. ErrClosed would mean that
// another attempt is pointless.
func attemptError(err error) error {
	err = inTime(err)
	var failure *dialect.Failure
	if errors.As(err, &failure) && failure.Kind == dialect.Closed {
		err = &dialect.Failure{Kind: dialect.Gone, Reason: "the connection was lost"}
	}
	return fromDialect(err)
}
