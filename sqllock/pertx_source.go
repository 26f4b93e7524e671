package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// Where a TxLocker gets its transactions from.

// A txSource begins transactions.
type txSource interface {
	// begin begins a transaction that lives no longer than life. ctx bounds the
	// wait for a connection.
	begin(ctx, life context.Context) (heldTx, error)

	// isNeighbour reports whether p is in the database of the transactions.
	isNeighbour(ctx context.Context, p dialect.Process) bool
}

// A heldTx is a transaction, and what is known of its connection.
type heldTx struct {
	tx   Tx
	conn *sql.Conn // closed after the transaction; nil: tx does it
	pid  int64     // of the server process; 0: not known
}

// A txHolder is the transaction that holds a lock.
type txHolder struct {
	heldTx
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

// A txPool begins transactions on connections of a pool.
type txPool struct{ db *sql.DB }

func (p txPool) begin(ctx, life context.Context) (heldTx, error) {
	conn, err := postgres.Borrow(ctx, p.db)
	if err != nil {
		return heldTx{}, err
	}
	tx, err := postgres.Begin(life, conn)
	if err != nil {
		_ = conn.Close()
		return heldTx{}, err
	}
	return heldTx{tx, conn, postgres.ServerPID(conn)}, nil
}

func (p txPool) isNeighbour(ctx context.Context, process dialect.Process) bool {
	conn, err := postgres.Borrow(ctx, p.db)
	if err != nil {
		return false
	}
	defer conn.Close()
	same, err := postgres.IsNeighbour(ctx, conn, process)
	return same && err == nil
}

// A txFunc is the function of PerTxFunc.
type txFunc func(ctx context.Context) (Tx, error)

func (f txFunc) begin(_, life context.Context) (heldTx, error) {
	tx, err := f(life)
	if err == nil && tx == nil {
		err = errNoTx
	}
	err = postgres.BeginFailure(err)
	h := heldTx{tx: tx}
	if t, ok := tx.(interface{ ServerPID() int64 }); ok && err == nil {
		h.pid = t.ServerPID()
	}
	return h, err
}

func (f txFunc) isNeighbour(ctx context.Context, process dialect.Process) bool {
	tx, err := f(ctx)
	if err != nil || tx == nil {
		return false
	}
	defer func() { _ = tx.Rollback() }()
	return postgres.IsNeighbourXact(ctx, tx, process)
}

var errNoTx = dialect.Misconfigured("the function of PerTxFunc returned no transaction and no error")
