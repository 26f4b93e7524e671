package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// shortTimeouts are the settings by which a server ends statements or sessions
// before a session of locks has set its own.
var shortTimeouts = []string{"statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"}

const (
	// shortTimeout is longer than anything that Open waits for on a server that
	// is well.
	shortTimeout = time.Second

	// explainTimeout bounds ExplainTimeout, which delays the next attempt.
	explainTimeout = 500 * time.Millisecond
)

// ExplainTimeout returns err, with which Open has failed. If a short timeout of
// the role, the database or the server may be the cause, it adds which.
//
// A driver reports such an end in various ways. lib/pq often says only that the
// connection was closed. So ExplainTimeout asks, on another connection.
func ExplainTimeout(ctx context.Context, db *sql.DB, err error) error {
	var failure *dialect.Failure
	if errors.Is(err, dbconn.ErrSilence) { // what ends early says so, and another connection may hang as well
		return err
	}
	if !errors.As(dialect.Fail(err), &failure) || failure.Kind > dialect.Statement || failure.Permanent || !endsEarly(failure.State) {
		return err
	}
	name, asked := dbconn.Within(ctx, explainTimeout, func(ctx context.Context) (string, error) { return shortTimeoutOf(ctx, db) })
	if asked != nil || name == "" {
		return err
	}
	explained := *failure
	explained.Reason = fmt.Sprintf("%s; %s is less than %v here: raise it for the role, or in the connection string,"+
		" since a Session sets its own only after it has connected", failure.Reason, name, shortTimeout)
	return &explained
}

// endsEarly reports whether an error with this SQLSTATE may come from one of
// shortTimeouts. Without a state the connection was just gone.
func endsEarly(state string) bool {
	switch state {
	case "", "57014", "57P05", "25P03", "25P04":
		return true
	}
	return false
}

// shortTimeoutOf returns the first of shortTimeouts that is short, or "".
func shortTimeoutOf(ctx context.Context, db *sql.DB) (string, error) {
	var cases strings.Builder
	for i, name := range shortTimeouts {
		fmt.Fprintf(&cases, " WHEN pg_catalog.current_setting('%s', true)::interval OPERATOR(pg_catalog.>) '0'::interval"+
			" AND pg_catalog.current_setting('%[1]s', true)::interval OPERATOR(pg_catalog.<) '%dms'::interval THEN %d",
			name, shortTimeout.Milliseconds(), i+1)
	}
	conn, err := dbconn.Live(ctx, db)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	n, err := rows(ctx, conn, "SELECT FROM pg_catalog.generate_series(1, CASE"+cases.String()+" ELSE 0 END)")
	if err != nil || n < 1 || int(n) > len(shortTimeouts) {
		return "", err
	}
	return shortTimeouts[n-1], nil
}
