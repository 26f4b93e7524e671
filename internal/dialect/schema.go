package dialect

// A Schema is the statements that create the tables of one feature in each kind
// of database.
//
// Invariant: no statement has a semicolon in it, its comments included. A
// migration tool that splits its files at semicolons can take the statements.
type Schema struct{ PostgreSQL, SQLite, MySQL []string }

// SessionSchema returns the tables of locks.
func SessionSchema() Schema {
	return Schema{
		PostgreSQL: leaseTables(postgresTypes),
		SQLite:     leaseTables(sqliteTypes),
		MySQL:      []string{mysqlClaims},
	}
}

// FenceSchema returns the tables of Fence.
func FenceSchema() Schema {
	return Schema{
		PostgreSQL: []string{postgresFence},
		SQLite:     []string{sqliteFence},
		MySQL:      []string{mysqlTokens, mysqlTokensRow, mysqlFenceTable},
	}
}

// MarkSchema returns the table of marks.
func MarkSchema() Schema {
	return Schema{
		PostgreSQL: []string{postgresMarks},
		SQLite:     []string{sqliteMarks},
		MySQL:      []string{mysqlMarks},
	}
}

// RegistrySchema returns the tables of the registry, which is PostgreSQL's alone.
func RegistrySchema() Schema {
	return Schema{PostgreSQL: []string{postgresHeartbeats, postgresWaits}}
}
