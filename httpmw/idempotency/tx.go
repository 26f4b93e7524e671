package idempotency

import (
	"context"
	"database/sql"
)

// txKey is the context key of the handler's transaction.
type txKey struct{}

// Tx returns the transaction in which the handler of a [Middleware] does its
// effect. It reports false outside of a Middleware, and for a request that
// needs no key and has none. The handler of such a request begins its own
// transaction.
//
// The handler must neither commit nor roll back the transaction: the status of
// its response decides. The transaction does not end with the request's
// context, so pass that context to each statement.
//
// [sqllock.TxFromContext] returns another transaction, that of a PerTx lock.
func Tx(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}
