package watermark

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/session"
	"github.com/latchkey-go/latchkey/sqllock"
)

// advice is what a person can do about a table that is missing, or that the role
// may not use, by SQLSTATE. 42S02 is MySQL's.
var advice = map[string]string{
	"42S02": "there is no table latchkey_watermarks in the database: create it with watermark.Schema(MySQL)",
	"42P01": "there is no table latchkey_watermarks in the search_path:" +
		" create it with watermark.Schema(PostgreSQL), or, if it is in another schema, add that to the search_path",
	"42501": "the role may not use the table latchkey_watermarks: grant it INSERT, SELECT and UPDATE",
}

// callerError adds to err advice, or the error of sqllock that a caller compares
// with. An error of the statement, or of a transaction that has ended, needs none.
func callerError(err error) error {
	var failure *dialect.Failure
	if text := advice[errcode.SQLState(err)]; text != "" {
		return fmt.Errorf("watermark: %s: %w", text, err)
	}
	switch {
	case !errors.As(err, &failure):
		return err // nil, or ctx's
	case failure.Kind == dialect.Statement, failure.Kind == dialect.Closed:
		return fmt.Errorf("watermark: %w", failure)
	}
	return session.FromDialect(failure)
}

// inContext adds to err what has ended ctx, since some drivers report only that
// the server has cancelled the statement. The loss of the lock that ctx carries is
// ErrLost, too, also if it has ended the transaction alone.
func inContext(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrPassed) {
		return err
	}
	isEnd := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if ended := ctx.Err(); ended != nil && isEnd {
		err = ended
	} else if ended != nil {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	lock, _ := sqllock.FromContext(ctx)
	cause := context.Cause(ctx)
	if errors.Is(cause, sqllock.ErrLost) || errors.Is(cause, sqllock.ErrClosed) ||
		lock != nil && (isEnd || errors.Is(err, sql.ErrTxDone)) && ctx.Err() == nil && errors.Is(lock.Err(), sqllock.ErrLost) {
		return fmt.Errorf("%w: %w", sqllock.ErrLost, err)
	}
	return err
}
