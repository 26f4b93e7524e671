package dialect

import (
	"context"
	"database/sql"
	"os"
	"strconv"
	"strings"
)

// Quoted returns s as an SQL literal. It is for text without backslashes.
func Quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// An Execer is the part of *sql.Tx that sends a statement.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// A Schema has the statements that create the tables of one feature, for each
// kind of database.
//
// Invariant: no statement contains a semicolon, not even in a comment. So a
// migration tool that splits its files at semicolons can run the statements.
type Schema struct{ PostgreSQL, SQLite, MySQL []string }

// Holder returns host/pid of this process, for people who read the tables.
func Holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}
