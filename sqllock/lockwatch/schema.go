package lockwatch

import (
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Schema returns the statements that create the tables of the registry in
// a database of kind d. Their form is that of [sqllock.Schema]. It returns none for SQLite
// and MySQL, which have no registry.
//
// A Session with [sqllock.WithRegistry] writes to the tables with each heartbeat: a lock
// that is held for less than a heartbeat never shows there. [Inspect] and [Watch]
// read the tables if they exist, and work without them.
//
// A role that reads them needs SELECT. The role of Watch, which removes the rows of
// dead processes, needs DELETE and UPDATE too. The rows may hold personal data, so
// grant SELECT with care. Let the role that reads, the owner of the database or a
// superuser create the tables. Tables of another owner are used only if their
// schema is named. The tables may not be views, foreign tables or partitioned.
//
// Schema panics if d is not a constant of package sqllock.
func Schema(d sqllock.Dialect) []string {
	switch d {
	case sqllock.PostgreSQL:
		return postgres.RegistrySchema().PostgreSQL
	case sqllock.SQLite, sqllock.MySQL:
		return nil
	}
	panic("lockwatch: there is no schema for the dialect " + string(d))
}
