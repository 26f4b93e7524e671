package lockwatch

import (
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Schema returns the statements that create the registry's tables,
// latchkey_heartbeats and latchkey_waits, in a database of kind d. Their form is
// that of [sqllock.Schema]. It returns none for SQLite and MySQL, which have no
// registry.
//
// A Session with [sqllock.WithRegistry] writes to the tables with each heartbeat.
// A lock that is held for less than a heartbeat never appears there. [Inspect] and
// [Watch] read the tables if they exist, and work without them.
//
// Rights and owners:
//   - The role of Inspect and Watch needs SELECT.
//   - The role of Watch needs DELETE and UPDATE too, to remove the rows of dead
//     processes.
//   - The rows may hold personal data: grant SELECT with care.
//   - The owner should be the role that reads, the owner of the database or a
//     superuser. Tables of another owner are read only with [WithSchema].
//   - The tables may not be views, foreign tables or partitioned.
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
