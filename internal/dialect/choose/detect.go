package choose

import (
	"context"
	"database/sql"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// A System is what a database says that it is.
type System uint8

// The systems.
const (
	PostgreSQL     System = iota
	LikePostgreSQL        // it understands PostgreSQL's SQL, and is another system
	SQLite
	MySQL     // or MariaDB
	LikeMySQL // it understands MySQL's SQL, and is another system
)

// Detect finds out which system conn is connected to, and the version that one
// with MySQL's SQL has. The error is the driver's.
//
// This is the one place of the kit that asks. It asks as for PostgreSQL first,
// with an Exec without arguments, which does no harm behind a transaction pooler.
// It asks in another way only if the question was not understood.
func Detect(ctx context.Context, conn *sql.Conn) (system System, version string, err error) {
	genuine, err := postgres.IsGenuine(ctx, conn)
	_, _, isMySQL := errcode.MySQL(err)
	switch {
	case genuine:
		return PostgreSQL, "", nil
	case err == nil:
		return LikePostgreSQL, "", nil
	case isMySQL && dialect.IsStatement(err):
		return detectMySQL(ctx, conn)
	case errcode.Of(err) != "" && !isSQLite(err), errcode.Of(err) == "" && conn.PingContext(ctx) != nil:
		return 0, "", err
	}
	// SQLite, or a driver whose errors are not known.
	err = conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version)
	if err == nil || errcode.IsBusy(err) { // to open a session waits for a file that is locked
		return SQLite, "", nil
	}
	if isSQLite(err) || conn.PingContext(ctx) != nil {
		return 0, "", err
	}
	return detectMySQL(ctx, conn)
}

func isSQLite(err error) bool {
	_, ok := errcode.SQLite(err)
	return ok
}

func detectMySQL(ctx context.Context, conn *sql.Conn) (system System, version string, err error) {
	if err := conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return 0, "", err
	}
	if nameIn(version) != "" {
		return LikeMySQL, version, nil
	}
	return MySQL, version, nil // 8.0.36, 10.11.19-MariaDB
}

// nameIn returns the name of another system than MySQL and MariaDB, if it is in
// version.
func nameIn(version string) string {
	for _, name := range []string{"TiDB", "Vitess", "OceanBase", "SingleStore"} {
		if strings.Contains(version, name) {
			return name
		}
	}
	return ""
}
