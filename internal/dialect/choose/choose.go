// Package choose finds the dialect of a database.
package choose

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
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
		return nil, dialect.Refuse(isLookAlike)
	case SQLite:
		return leasetable.SQLite{}, nil
	case LikeMySQL:
		return nil, dialect.Refuse("this is " + nameIn(version) + ", and it is not known whether its GET_LOCK excludes: pass WithDialect(sqllock.MySQL) if you are sure")
	}
	if leaseTable {
		return nil, dialect.Refuse("WithLeaseTable is for PostgreSQL's SQL: for MySQL and MariaDB leave it out")
	}
	return mysql.Dialect{}, nil
}

// isLookAlike is the reason to reject a system that speaks PostgreSQL's SQL and is
// not PostgreSQL.
const isLookAlike = "this is not PostgreSQL by its version(), and what merely speaks its protocol often grants every lock, as CockroachDB does:" +
	" pass WithLeaseTable(), or WithDialect(sqllock.PostgreSQL) for a system known to implement session-level advisory locks"
