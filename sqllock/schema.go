package sqllock

import (
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Schema is the statements that make every table that latchkey can use in a database of
// this kind, those of [Fence], [Advance] and [WithRegistry] among them, for those who keep them in migrations, or whose
// services may not create tables:
//
//	fmt.Print(sqllock.Schema(sqllock.PostgreSQL))
//
// Without it, Open makes those that a lease table needs, on SQLite [Fence]'s, too; on
// MySQL and MariaDB a Session makes a table at the first key with a secret, and two at the
// first Fence. PostgreSQL's advisory locks need no table, but Fence does. The tables of Advance and of the registry nobody
// makes but you, in any database; that of httpmw's Idempotency is not among them.
//
// What is there already stays as it is, so the statements may be run again, by two
// processes at once, too: of these PostgreSQL may refuse one, which then is to run them
// again. They are separated by semicolons; go-sql-driver takes several at once with
// multiStatements=true only.
//
// Schema panics for a Dialect that is not a constant of this package.
func Schema(d Dialect) string {
	switch d {
	case PostgreSQL:
		return dialect.PostgreSQLSchema(FenceSchema, MarkSchema, strings.TrimSuffix(HeartbeatSchema, ";\n"))
	case SQLite:
		return dialect.SQLiteSchema()
	case MySQL:
		return dialect.MySQLSchema()
	}
	panic("sqllock: Schema knows no dialect " + string(d))
}
