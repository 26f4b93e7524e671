package dialect

// A Schema has the statements that create the tables of one feature, for each
// kind of database.
//
// Invariant: no statement contains a semicolon, not even in a comment. So a
// migration tool that splits its files at semicolons can run the statements.
type Schema struct{ PostgreSQL, SQLite, MySQL []string }
