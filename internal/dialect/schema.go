package dialect

// A Schema is the statements that create the tables of one feature in each kind
// of database.
//
// Invariant: no statement has a semicolon in it, its comments included. A
// migration tool that splits its files at semicolons can take the statements.
type Schema struct{ PostgreSQL, SQLite, MySQL []string }
