// Package watermark keeps a number for each key that only rises: the last tick
// of a job, the offset in a stream, a version.
//
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback()
//	if err := watermark.Advance(ctx, tx, sqllock.Namespace("job").Key("report"), tick.UnixMilli()); err != nil {
//		return err // ErrPassed: this tick was run before
//	}
//	return tx.Commit()
//
// A lock says who may work now. A watermark says how far the work has come, and
// outlives every lock. The numbers are rows of the table latchkey_watermarks in
// the service's own database. [Schema] creates it.
package watermark
