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
// It asks the database as PostgreSQL first, with an Exec without arguments,
// which does no harm behind a transaction pooler. It asks in another way only
// if the question was not understood. It does not ask if the driver brings its
// own dialect.
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
	d, err := choose(ctx, conn, leaseTable)
	return d, dialect.Fail(err)
}

func choose(ctx context.Context, conn *sql.Conn, leaseTable bool) (dialect.Dialect, error) {
	genuine, err := postgres.IsGenuine(ctx, conn)
	_, _, isMySQL := errcode.MySQL(err)
	switch {
	case err == nil && leaseTable:
		return leasetable.PostgreSQL{}, nil
	case err == nil && genuine:
		return postgres.Dialect{}, nil
	case err == nil:
		return nil, lookAlike(ctx, conn)
	case isMySQL && dialect.IsStatement(err):
		return chooseMySQL(ctx, conn, leaseTable)
	case errcode.SQLState(err) != "" || !dialect.IsStatement(err):
		return nil, err
	}
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err == nil || isLockedSQLite(err) {
		return leasetable.SQLite{}, nil
	} else if !dialect.IsStatement(err) {
		return nil, err
	}
	return chooseMySQL(ctx, conn, leaseTable) // by a driver that we do not know
}

// isLockedSQLite reports whether err means that another connection has locked a
// file of SQLite at this moment. To open a session there waits for it.
func isLockedSQLite(err error) bool {
	code, ok := errcode.SQLite(err)
	return ok && (code&0xff == errcode.SQLiteBusy || code&0xff == errcode.SQLiteLocked)
}

func chooseMySQL(ctx context.Context, conn *sql.Conn, leaseTable bool) (dialect.Dialect, error) {
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, err
	}
	return mysqlByVersion(version, leaseTable)
}

// lookAlike returns the failure for a system that speaks PostgreSQL's SQL and
// is not PostgreSQL. Its text says what to do.
func lookAlike(ctx context.Context, conn *sql.Conn) error {
	for _, known := range []struct{ pattern, name string }{
		{"CockroachDB%", "CockroachDB, whose advisory locks do nothing"},
		{"%-YB-%", "YugabyteDB, whose advisory locks do nothing before 2025.1"},
		{"%Aurora DSQL%", "Aurora DSQL, which has no advisory locks"},
	} {
		is, err := postgres.Holds(ctx, conn, "pg_catalog.version() LIKE "+dialect.Quoted(known.pattern))
		if err != nil {
			return err
		}
		if is {
			return dialect.Refuse("this is " + known.name + ": pass WithLeaseTable()")
		}
	}
	return dialect.Refuse("this is not PostgreSQL by its version(), and what merely speaks its protocol often grants every lock: pass WithLeaseTable(), or WithDialect(sqllock.PostgreSQL) for a system known to implement session-level advisory locks")
}

func mysqlByVersion(version string, leaseTable bool) (dialect.Dialect, error) {
	for _, other := range []string{"TiDB", "Vitess", "OceanBase", "SingleStore"} {
		if strings.Contains(version, other) {
			return nil, dialect.Refuse("this is " + other + ", and it is not known whether its GET_LOCK excludes: pass WithDialect(sqllock.MySQL) if you are sure")
		}
	}
	if leaseTable {
		return nil, dialect.Refuse("WithLeaseTable is for PostgreSQL's SQL: for MySQL and MariaDB leave it out")
	}
	return mysql.Dialect{}, nil
}
