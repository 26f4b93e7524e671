package sqllock

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// Where a TxLocker gets its transactions from.

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
	return newTxLocker("PerTxFunc", txFunc(begin), opts)
}

// TxFrom is [TxFromContext] for the transactions of [PerTxFunc]. T is the type
// that its function returns. ok is false for a transaction of another type.
func TxFrom[T Tx](ctx context.Context) (tx T, ok bool) {
	if l, carried := FromContext(ctx); carried && l.tx != nil {
		tx, ok = l.tx.tx.(T)
	}
	return tx, ok
}

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

// A txPool begins transactions on connections of a pool.
type txPool struct{ db *sql.DB }

func (p txPool) begin(ctx, life context.Context) (heldTx, error) {
	conn, err := p.db.Conn(ctx)
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
	conn, err := p.db.Conn(ctx)
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
	return heldTx{tx: tx}, err
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
