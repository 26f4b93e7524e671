// Package pgxlatchkey lets transactions of pgx hold latchkey's locks, and be
// fenced by them:
//
//	tx, err := pool.Begin(ctx)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback(ctx)
//	if err := sqllock.TryTx(ctx, pgxlatchkey.Tx(tx), key); err != nil {
//		return err
//	}
//
// [Tx] is what TryTx, LockTx, Fence and watermark.Advance take. [PerTx] returns
// a locker that holds each lock on a pgx.Tx of its own. A Session needs nothing
// from here: see the page on [pgx].
//
// [pgx]: https://github.com/latchkey-go/latchkey/blob/main/docs/pgx.md
package pgxlatchkey
