package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// A Dialect names a kind of database for [WithDialect] and [Schema].
type Dialect string

// The dialects. Open detects that of a database.
const (
	// PostgreSQL is version 14 or newer. Locks are advisory locks, or rows of a
	// lease table (WithLeaseTable).
	PostgreSQL Dialect = "postgres"

	// SQLite is version 3.35 or newer, for the processes of one machine. Locks
	// are rows of a lease table. Open sets the journal of the file to
	// write-ahead (WAL) permanently.
	//
	// A file has one writer at a time. While a transaction of the service
	// writes to the file of the locks, calls for locks wait. They return
	// ErrUnavailable after 0.9 s. If the transaction lasts for four fifths of
	// the lease, the locks are lost. A fenced transaction is one that writes.
	// So keep the locks in a file of their own, unless all transactions are
	// short. Give the connections of the data a busy_timeout.
	SQLite Dialect = "sqlite"

	// MySQL is MySQL 8.0.16, MariaDB 10.5, TiDB 8.0 or newer. Locks are those
	// of GET_LOCK, or rows of a lease table (WithLeaseTable), as TiDB needs it.
	MySQL Dialect = "mysql"
)

// Schema returns the statements that create the tables which a [Session] needs
// in a database of kind d. Run them in a migration if the service may not
// create tables:
//
//	for _, statement := range sqllock.Schema(sqllock.PostgreSQL) {
//		if _, err := db.ExecContext(ctx, statement); err != nil {
//			return err
//		}
//	}
//
// Each element is one statement, without a semicolon anywhere in it. It needs
// no setting of the driver, and it changes nothing that is there, so it may run
// again. Of two processes that run it at once on PostgreSQL, one may fail, and
// succeeds when it tries again.
//
// The tables are these:
//   - PostgreSQL: those of [WithLeaseTable]. Advisory locks need none.
//   - SQLite: those of every Session.
//   - MySQL, MariaDB and TiDB: those of WithLeaseTable, which need those of
//     [FenceSchema] too. Another one is for keys with a secret
//     ([Namespace.Keyed]), and only earlier releases in the same fleet use it.
//
// A table that is there keeps its columns and its rows, whichever version has made
// it. If it is of a version that this one cannot share it with, Open returns
// ErrConfig and says so.
//
// Without Schema, a Session with the right to create tables makes them itself.
// The tables of other features are in [FenceSchema], watermark.Schema and
// lockwatch.Schema.
//
// Schema panics if d is not a constant of this package.
func Schema(d Dialect) []string {
	return statements(d, dialect.Schema{
		PostgreSQL: leasetable.PostgreSQLSchema(),
		SQLite:     leasetable.SQLiteSchema(),
		MySQL:      slices.Concat(mysql.Schema(), leasetable.MySQLSchema()),
	})
}

// FenceSchema returns the statements that create the tables which [Fence] needs
// in a database of kind d. Their form is that of [Schema].
//
// On PostgreSQL nothing else creates the table latchkey_fence. The search_path
// of the fenced transactions must find it, and all that write under a key must
// find the same one. Their role needs INSERT, SELECT and UPDATE on it. On
// SQLite the table belongs in the file of the data, and Open creates it in the
// file of the locks. On MySQL and MariaDB the first Fence creates what is
// missing.
//
// The table latchkey_fence has a row for each key that was ever fenced. A row
// may be deleted once no process can still hold a lock from its time. A day is
// long:
//
//	DELETE FROM latchkey_fence WHERE fenced_at < now() - interval '1 day'
//
// FenceSchema panics if d is not a constant of this package.
func FenceSchema(d Dialect) []string { return statements(d, usertx.FenceSchema()) }

// statements returns those of s for d.
func statements(d Dialect, s dialect.Schema) []string {
	switch d {
	case PostgreSQL:
		return s.PostgreSQL
	case SQLite:
		return s.SQLite
	case MySQL:
		return s.MySQL
	}
	panic("sqllock: there is no schema for the dialect " + string(d))
}
