package idempotency

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"
)

// maxAbandoned bounds the goroutines, and so the connections, that a stuck driver may
// keep.
const maxAbandoned = 100

// A transaction has a connection of its own. Its steps end in time even if the server
// is frozen or the network silent: some drivers then heed no context, and Commit and
// Rollback have none.
//
// Invariant: a connection goes back to the pool only when its transaction is
// known to be over and its settings are as before; one in doubt is destroyed. Its
// place in the pool's share is given back after that.
type transaction struct {
	store     *store
	conn      *sql.Conn
	table     responseTable // nil: conn was not prepared
	tx        *sql.Tx
	ctx       context.Context // of tx and our statements in it
	cancel    context.CancelFunc
	waits     int64 // of all callers for a connection of the pool, until t had its own
	committed bool
	over      bool // ended, or given up: what is left to do is done, or others do it
}

// begin begins t. Without an error, the caller must end it.
func (t *transaction) begin(ctx context.Context, s *store) error {
	if s.abandoned.Load() >= maxAbandoned {
		return errNoTx
	}
	bounded, stop := context.WithTimeout(ctx, claimTimeout)
	defer stop()
	if !s.share.take(bounded, s.mostEffects()) {
		return s.poolError()
	}
	t.store = s
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err := t.step(ctx, claimTimeout, func() error { return t.open(bounded) })
	if err == nil {
		return nil
	}
	t.end()
	if serverCode(err) == "" && !errors.Is(err, errSetup) {
		return errNoTx
	}
	return err
}

// open takes a connection and begins tx on it. What the pool has may be dead, as all of
// it is after a restart of the server: then it tries another.
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
		if !errors.Is(err, driver.ErrBadConn) {
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
	if t.table, err = kind.enter(t.ctx, t.conn, t.store.maxIdle); err != nil {
		return err
	}
	t.tx, err = t.conn.BeginTx(t.ctx, &t.store.txOptions)
	if err != nil && t.refusesOptions(err) {
		return errTxOptions
	}
	return err
}

// refusesOptions reports whether err is the driver's word on WithTxOptions: the server
// has not been asked, and is there.
func (t *transaction) refusesOptions(err error) bool {
	return t.store.txOptions != (sql.TxOptions{}) && serverCode(err) == "" && !errors.Is(err, driver.ErrBadConn) &&
		t.conn.PingContext(t.ctx) == nil
}

// step does do, and returns when do has, when ctx ends or when the time is up. Then
// t is given up: whenever do returns, the connection is destroyed.
func (t *transaction) step(ctx context.Context, limit time.Duration, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	t.over = true
	t.cancel()
	t.store.abandoned.Add(1)
	go func() {
		defer t.store.abandoned.Add(-1)
		defer t.giveBack()
		<-done //nolint:errcheck // it was given up
		t.destroy()
	}()
	return errNoReply
}

// end rolls back what is not committed, and gives the connection back.
func (t *transaction) end() {
	if t.over {
		return
	}
	_ = t.step(context.Background(), commitTimeout, t.finish) // no caller is left to tell
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
func (t *transaction) giveBack() { t.store.share.give(t.store.mostEffects()) }

// finish rolls back what is not committed, and puts the connection's settings back. It
// destroys the connection if either is in doubt.
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

// destroy ends tx and its session, rather than give it back.
func (t *transaction) destroy() {
	if t.tx != nil {
		_ = t.tx.Rollback()
	}
	if t.conn != nil {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}
