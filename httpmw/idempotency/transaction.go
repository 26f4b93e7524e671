package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// maxAbandoned bounds the goroutines, and so the connections, that a stuck
// driver keeps.
const maxAbandoned = 100

// A transaction has a connection of its own. Its steps end in time even if the
// server is frozen or the network silent. Some drivers ignore their context
// then, and Commit and Rollback have no context.
//
// Invariant: a connection returns to the pool only when its transaction has
// certainly ended and its settings are as before. A connection in doubt is
// destroyed. The place in the pool's share is given back after that.
type transaction struct {
	store     *store
	conn      *sql.Conn
	table     responseTable // nil until conn is prepared
	tx        *sql.Tx
	ctx       context.Context // of tx and the statements of this package in it
	cancel    context.CancelFunc
	waits     int64 // how often callers had waited for a connection of the pool when t got its own
	committed bool
	over      bool // ended, or given up: nothing is left to do for the owner of t
}

// begin begins t. If it returns nil, the caller must end t.
func (t *transaction) begin(ctx context.Context, s *store) error {
	if s.abandoned.Load() >= maxAbandoned {
		return errNoTx
	}
	bounded, stop := context.WithTimeout(ctx, s.timeout(claimTimeout))
	defer stop()
	if !s.share.take(bounded, s.places()) {
		return s.poolError()
	}
	t.store = s
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err := t.step(ctx, s.timeout(claimTimeout), func() error { return t.open(bounded) })
	if err == nil {
		return nil
	}
	t.end()
	if serverCode(err) == "" && !errors.Is(err, errSetup) {
		return errNoTx
	}
	return err
}

// open takes a connection and begins tx on it. The connections of the pool may
// be dead, as all are after a restart of the server, or after
// idle_session_timeout. Then open tries another: nothing has had an effect yet.
func (t *transaction) open(ctx context.Context) (err error) {
	for range 1 + t.store.db.Stats().OpenConnections {
		if t.conn, err = t.store.db.Conn(ctx); err != nil {
			return err
		}
		t.waits = t.store.db.Stats().WaitCount
		if err = t.beginOn(); err == nil {
			return nil
		}
		t.destroy()
		code := serverCode(err)
		if code != "" && code != idleForTooLong || errors.Is(err, errSetup) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// beginOn prepares the connection, and begins tx on it.
func (t *transaction) beginOn() error {
	kind, err := t.store.on(t.ctx, t.conn)
	if err != nil {
		return err
	}
	if t.table, err = kind.enter(t.ctx, t.conn, t.store.maxIdle, t.store.timeout(claimTimeout)); err != nil {
		return err
	}
	t.tx, err = t.conn.BeginTx(t.ctx, &t.store.txOptions)
	if err != nil && t.rejectsOptions(err) {
		return errTxOptions
	}
	return err
}

// rejectsOptions reports whether err means that the driver does not know
// WithTxOptions. Then the server was not asked, and is reachable.
func (t *transaction) rejectsOptions(err error) bool {
	return t.store.txOptions != (sql.TxOptions{}) && serverCode(err) == "" && !errors.Is(err, driver.ErrBadConn) &&
		t.conn.PingContext(t.ctx) == nil
}

// step calls do. It returns when do has returned, or with errNoReply when ctx
// ends or timeout has passed. After errNoReply t is given up: when do returns
// at last, the connection is destroyed.
func (t *transaction) step(ctx context.Context, timeout time.Duration, do func() error) error {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	err, inTime := dbconn.Call(ctx, do, func(error) {
		defer t.store.abandoned.Add(-1)
		defer t.giveBack()
		t.destroy()
	})
	if inTime {
		return err
	}
	t.over = true
	t.cancel()
	t.store.abandoned.Add(1)
	return errNoReply
}

// end rolls back what is not committed, and returns the connection to the pool.
func (t *transaction) end() {
	if t.over {
		return
	}
	_ = t.step(context.Background(), t.store.timeout(commitTimeout), t.finish) // the response does not depend on it
	if t.over {
		return
	}
	t.over = true
	t.cancel()
	if t.conn != nil {
		_ = t.conn.Close()
	}
	t.giveBack()
}

// giveBack gives the place in the pool's share back.
func (t *transaction) giveBack() { t.store.share.give(t.store.places()) }

// finish rolls back what is not committed, and restores the connection's
// settings. It destroys the connection if either is in doubt.
func (t *transaction) finish() error {
	if t.tx == nil {
		return nil // open has destroyed what it had
	}
	clean := t.committed
	if !clean {
		err := t.tx.Rollback()
		clean = err == nil
		if !clean && !errors.Is(err, sql.ErrTxDone) && serverCode(err) == "" {
			t.destroy()
			return err
		}
	}
	err := t.table.leave(t.ctx, t.conn, clean)
	if err != nil {
		t.destroy()
	}
	return err
}

// destroy ends tx and closes its connection, which does not return to the pool.
func (t *transaction) destroy() {
	if t.tx != nil {
		_ = t.tx.Rollback()
	}
	if t.conn != nil {
		dbconn.Destroy(t.conn, "")
	}
}
