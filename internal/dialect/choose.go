package dialect

import (
	"context"
	"database/sql"
	"strings"
)

// Choose finds the dialect of db from what it says of itself. The error is a *Failure, or ctx's.
//
// It asks as PostgreSQL first, in an Exec without arguments, which does no harm
// behind a transaction pooler; and otherwise only where that was not understood.
func Choose(ctx context.Context, db *sql.DB, leaseTable bool) (Dialect, error) {
	conn, err := lendOne(ctx, db)
	if err != nil {
		return nil, Fail(err)
	}
	defer conn.Close()
	d, err := choose(ctx, conn, leaseTable)
	return d, Fail(err)
}

func choose(ctx context.Context, conn *sql.Conn, leaseTable bool) (Dialect, error) {
	genuine, err := isGenuine(ctx, conn)
	_, _, isMySQL := mysqlError(err)
	switch {
	case err == nil && leaseTable:
		return LeaseTable{}, nil
	case err == nil && genuine:
		return PostgreSQL{}, nil
	case err == nil:
		return nil, lookAlike(ctx, conn)
	case isMySQL && isAnswer(err):
		return chooseMySQL(ctx, conn, leaseTable)
	case SQLState(err) != "" || !isAnswer(err):
		return nil, err
	}
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err == nil {
		return SQLite{}, nil
	} else if !isAnswer(err) {
		return nil, err
	}
	return chooseMySQL(ctx, conn, leaseTable) // by a driver that we do not know
}

func chooseMySQL(ctx context.Context, conn *sql.Conn, leaseTable bool) (Dialect, error) {
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, err
	}
	return mysqlByVersion(version, leaseTable)
}

// lookAlike says what to do with what speaks PostgreSQL's SQL and is not PostgreSQL.
func lookAlike(ctx context.Context, conn *sql.Conn) error {
	for _, known := range []struct{ pattern, name string }{
		{"CockroachDB%", "CockroachDB, whose advisory locks do nothing"},
		{"%-YB-%", "YugabyteDB, whose advisory locks do nothing before 2025.1"},
		{"%Aurora DSQL%", "Aurora DSQL, which has no advisory locks"},
	} {
		is, err := holds(ctx, conn, "pg_catalog.version() LIKE "+quoted(known.pattern))
		if err != nil {
			return err
		}
		if is {
			return refuse("this is " + known.name + ": pass WithLeaseTable()")
		}
	}
	return refuse("this is not PostgreSQL by its version(), and what merely speaks its protocol often grants every lock: pass WithLeaseTable(), or WithDialect(sqllock.PostgreSQL) for a system known to implement session-level advisory locks")
}

func mysqlByVersion(version string, leaseTable bool) (Dialect, error) {
	for _, other := range []string{"TiDB", "Vitess", "OceanBase", "SingleStore"} {
		if strings.Contains(version, other) {
			return nil, refuse("this is " + other + ", and it is not known whether its GET_LOCK excludes: pass WithDialect(sqllock.MySQL) if you are sure")
		}
	}
	if leaseTable {
		return nil, refuse("WithLeaseTable is for PostgreSQL's SQL: for MySQL and MariaDB leave it out")
	}
	return MySQL{}, nil
}
