package dialect

import (
	"context"
	"database/sql"
	"strings"
)

func Quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// An Execer is a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}
