package pgtest

import (
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "github.com/lib/pq"              // registers "postgres"
)

// Drivers returns the names of the database/sql drivers that tests run with.
// This package registers them: the drivers themselves are a user's choice.
func Drivers() []string { return []string{"pgx", "postgres"} }
