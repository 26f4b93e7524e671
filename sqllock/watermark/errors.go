package watermark

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/sqllock"
)

// tableError adds to err what a person can do about a table that is missing, or
// that the role may not use. Any other error gets its sentinel.
func tableError(err error) error {
	switch errcode.SQLState(err) {
	case "42S02": // MySQL's
		return fmt.Errorf("watermark: there is no table latchkey_watermarks in the database: create it with watermark.Schema(MySQL): %w", err)
	case "42P01":
		return fmt.Errorf("watermark: there is no table latchkey_watermarks in the search_path:"+
			" create it with watermark.Schema(PostgreSQL), or, if it is in another schema, add that to the search_path: %w", err)
	case "42501":
		return fmt.Errorf("watermark: the role may not use the table latchkey_watermarks: grant it INSERT, SELECT and UPDATE: %w", err)
	}
	return withSentinel(err)
}

// withSentinel adds the error of sqllock that a caller compares with. An error
// of the statement, or of a transaction that has ended, needs none.
func withSentinel(err error) error {
	var failure *dialect.Failure
	if !errors.As(err, &failure) {
		return err // nil, or ctx's
	}
	sentinel := sqllock.ErrUnavailable
	switch {
	case failure.Kind == dialect.Statement, failure.Kind == dialect.Closed:
		return fmt.Errorf("watermark: %w", failure)
	case failure.Permanent:
		sentinel = sqllock.ErrConfig
	case failure.Kind == dialect.NotExclusive:
		sentinel = sqllock.ErrNotExclusive
	case failure.Kind == dialect.Full:
		sentinel = sqllock.ErrCapacity
	}
	return fmt.Errorf("%w: %w", sentinel, failure)
}

// inContext adds to err what has ended ctx, since some drivers report only that
// the server has cancelled the statement. A transaction may have ended with
// another context of the lock that ctx carries. Then inContext adds the loss of
// that lock.
func inContext(ctx context.Context, err error) error {
	ofContext := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil, errors.Is(err, ErrPassed):
		return err
	case ctx.Err() != nil && ofContext:
		return ended(ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case ofContext, errors.Is(err, sql.ErrTxDone):
		if lock, ok := sqllock.FromContext(ctx); ok && errors.Is(lock.Err(), sqllock.ErrLost) {
			return fmt.Errorf("%w: %w", sqllock.ErrLost, err)
		}
	}
	return err
}

// ended returns the error of ctx, which has ended, and ErrLost with it if the
// loss of a lock has ended ctx.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); errors.Is(cause, sqllock.ErrLost) || errors.Is(cause, sqllock.ErrClosed) {
		return fmt.Errorf("%w: %w", sqllock.ErrLost, err)
	}
	return err
}
