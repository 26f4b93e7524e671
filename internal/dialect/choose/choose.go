// Package choose finds the dialect of a database.
package choose

import (
	"context"
	"database/sql"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// Dialect returns the dialect for db. With leaseTable it prefers a table of
// leases. The error is a *Failure or that of ctx.
//
// It does not ask the database if the driver brings its own dialect.
func Dialect(ctx context.Context, db *sql.DB, leaseTable bool) (dialect.Dialect, error) {
	if own, ok := db.Driver().(dialect.Driver); ok {
		return own.Dialect(), nil
	}
	conn, err := dbconn.Lend(ctx, db)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	defer conn.Close()
	return OnConn(ctx, conn, leaseTable)
}

// OnConn is Dialect for a connection that the caller has. The driver does not
// bring its own dialect.
func OnConn(ctx context.Context, conn *sql.Conn, leaseTable bool) (dialect.Dialect, error) {
	system, version, err := Detect(ctx, conn)
	if err != nil {
		return nil, dialect.Fail(err)
	}
	switch system {
	case PostgreSQL, LikePostgreSQL:
		if leaseTable {
			return leasetable.PostgreSQL{}, nil
		}
		if system == PostgreSQL {
			return postgres.Dialect{}, nil
		}
		return nil, dialect.Refuse("this is not PostgreSQL by its version(), and what merely speaks its protocol often grants every lock, as CockroachDB does:" +
			" pass WithLeaseTable(), or WithDialect(sqllock.PostgreSQL) for a system known to implement session-level advisory locks")
	case SQLite:
		return leasetable.SQLite{}, nil
	case LikeMySQL:
		return nil, dialect.Refuse("this is " + nameIn(version) + ", and it is not known whether its GET_LOCK excludes: pass WithDialect(sqllock.MySQL) if you are sure")
	}
	switch {
	case leaseTable:
		return leasetable.MySQL{TiDB: system == TiDB}, nil
	case system == TiDB:
		return nil, dialect.Refuse("this is TiDB, whose GET_LOCK takes a second to say that a key is held: pass WithLeaseTable()")
	}
	return mysql.Dialect{}, nil
}

// A System is what a database says that it is.
type System uint8

// The systems.
const (
	PostgreSQL     System = iota
	LikePostgreSQL        // it understands PostgreSQL's SQL, and is another system
	SQLite
	MySQL     // or MariaDB
	TiDB      // with MySQL's SQL
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
	switch nameIn(version) {
	case "TiDB":
		return TiDB, version, nil
	case "":
		return MySQL, version, nil // 8.0.36, 10.11.19-MariaDB
	}
	return LikeMySQL, version, nil
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
