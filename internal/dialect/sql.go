package dialect

import (
	"context"
	"database/sql"
	"strings"
)

// Quoted returns s as an SQL literal. It is for text without backslashes.
func Quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// An Execer is the part of *sql.Tx that sends a statement.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
