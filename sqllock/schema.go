package sqllock

import (
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/leasetable"
	"github.com/latchkey-go/latchkey/internal/dialect/mysql"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// Schema returns the statements that create the tables which a [Session] needs in
// a database of kind d. Run them in a migration if the service may not create
// tables:
//
//	for _, statement := range sqllock.Schema(sqllock.PostgreSQL) {
//		if _, err := db.ExecContext(ctx, statement); err != nil {
//			return err
//		}
//	}
//
// Each element is one statement, without a semicolon anywhere in it. It needs no
// setting of the driver, and it changes nothing that is there, so it may run
// again. Of two processes that run it at once on PostgreSQL, one may fail, and
// succeeds when it tries again.
//
// The tables are these:
//   - PostgreSQL: those of [WithLeaseTable]. Advisory locks need none.
//   - SQLite: those of every Session.
//   - MySQL and MariaDB: the one of keys with a secret ([Namespace.Keyed]).
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
		MySQL:      mysql.Schema(),
	})
}

// FenceSchema returns the statements that create the tables which [Fence] needs in
// a database of kind d. Their form is that of [Schema].
//
// On PostgreSQL nothing else creates the table latchkey_fence. The search_path of
// the fenced transactions must find it, and all that write under a key must find
// the same one. Their role needs INSERT, SELECT and UPDATE on it. On SQLite the
// table belongs in the file of the data, and Open creates it in the file of the
// locks. On MySQL and MariaDB the first Fence creates what is missing.
//
// The table latchkey_fence has a row for each key that was ever fenced. A row may
// be deleted once no process can still hold a lock from its time. A day is long:
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
