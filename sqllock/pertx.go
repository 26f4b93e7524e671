package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// A TxLocker is a Locker that holds each lock on a transaction of its own: the
// one that works behind a transaction pooler such as PgBouncer's. Each lock held
// costs a connection of the pool, and a transaction that stays open as long.
//
// The work can share the transaction: [TxFromContext] gives it, and committing
// it ends the lock and makes the work permanent in one step. Unlock rolls back
// what has not been committed.
type TxLocker struct {
	db    *sql.DB
	lease time.Duration // 0: a transaction may be idle without end
	table *keyTable
}

// PerTx makes a TxLocker on db. Of opts it heeds WithLease: the server then ends
// a lock whose transaction has been idle for that long, so that a process that
// is frozen or cut off does not hold it for ever. Without it, such a lock stays
// until the server's TCP gives the connection up.
//
// PerTx panics if db is nil, or the lease is too short or too long.
func PerTx(db *sql.DB, opts ...Option) *TxLocker {
	if db == nil {
		panic("sqllock: PerTx needs a *sql.DB that is not nil")
	}
	o := newOptions(opts)
	if o.leaseSet && (o.lease < minLease || o.lease > maxLease) {
		panic("sqllock: PerTx needs a lease from " + minLease.String() + " to " + maxLease.String())
	}
	p := &TxLocker{db: db}
	if o.leaseSet {
		p.lease = o.lease
	}
	p.table = newKeyTable(p)
	p.table.handOver = 0
	p.table.timeout = answerTimeout
	return p
}

// TryLock takes key on a new transaction, or fails with ErrHeld, ErrNotExclusive
// on a standby, ErrUnavailable within a second if the database does not answer
// or the pool has no connection to spare, or ctx's error.
func (p *TxLocker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return p.table.acquire(ctx, key, want{})
}

// Lock waits for key until ctx ends: first come, first served in this process.
// While it waits it tries again from time to time and occupies no connection in
// between.
func (p *TxLocker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return p.table.acquire(ctx, key, want{waits: true})
}

// TxFromContext is the transaction on which a [TxLocker] holds the lock that
// ctx carries. Work done in it and the lock end together when it is committed;
// Unlock rolls back what is not.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	l, ok := FromContext(ctx)
	if !ok || l.tx == nil {
		return nil, false
	}
	return l.tx, true
}

// A txHolder is the transaction that holds a lock, and its connection.
type txHolder struct {
	conn   *sql.Conn
	tx     *sql.Tx
	cancel context.CancelFunc // of the context that tx lives in, for a driver that is stuck
}

// TxLocker is the source of its table: each key is asked for and given back by
// a goroutine, so that no caller's context reaches a transaction that may hold
// a lock.

// A txKey is what a TxLocker keeps for a key.
type txKey struct {
	plainKey
	state  keyState
	holder *txHolder // from the grant to the end
}

func txKeyOf(k *keyState) *txKey { return k.own.(*txKey) }

func (k *txKey) equip(l *Lock) { l.tx = k.holder.tx }

func (k *txKey) reset() { k.holder = nil }

func (p *TxLocker) newKey() *keyState {
	k := new(txKey)
	k.state.own = k
	return &k.state
}

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
func (p *TxLocker) takeGroup(*request) {}

func (p *TxLocker) away(*keyState) error { return nil }

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

// beginTx takes key, which must not change meanwhile, on a new transaction.
func (p *TxLocker) beginTx(key dialect.Key) (*txHolder, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, attemptError(dialect.Fail(err))
	}
	// The transaction outlives ctx, but not a server that never answers BEGIN.
	life, endLife := context.WithCancel(context.Background())
	tooLong := context.AfterFunc(ctx, endLife)
	tx, err := postgres.Begin(life, conn)
	tooLong()
	if err != nil {
		endLife()
		_ = conn.Close()
		return nil, attemptError(err)
	}
	h := &txHolder{conn, tx, endLife}
	ok, err := postgres.TryXact(ctx, tx, key)
	if ok && err == nil && p.lease > 0 {
		err = postgres.SetIdleTimeout(ctx, tx, p.lease)
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

// attemptError is err of an attempt to take a key. The connection and the
// transaction are the TxLocker's own, so if one is closed, the connection was
// lost: ErrClosed would say that there is no use in trying again.
func attemptError(err error) error {
	err = inTime(err)
	var failure *dialect.Failure
	if errors.As(err, &failure) && failure.Kind == dialect.Closed {
		err = &dialect.Failure{Kind: dialect.Gone, Reason: "the connection was lost"}
	}
	return fromDialect(err)
}

// rollBack gives the lock back: nil if it was held until now, or until its user
// ended the transaction.
func (h *txHolder) rollBack() error {
	tooLong := time.AfterFunc(connectTimeout, h.cancel)
	err := h.tx.Rollback()
	_ = h.conn.Close()
	tooLong.Stop()
	h.cancel()
	if err == nil || errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return ErrLost
}
