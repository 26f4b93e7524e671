package main

import (
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A kind is how the show around the service looks into a kind of database.
type kind struct {
	session  string // what a process has there for all its locks
	sessions string // query: how many of these there are
	name     string // query: what to call the database
}

// kinds are those of the drivers.
var kinds = map[string]kind{
	// A Session adds its name to the application's.
	pgxDriver: {
		session: "connection",
		sessions: `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE '%latchkey'`,
		name: `SELECT split_part(version(), ' ', 1)`,
	},
	// It borrows a connection for each statement; what stands for the process is
	// a row, until a time in milliseconds.
	sqliteDriver: {
		session: "session",
		sessions: `SELECT count(*) FROM latchkey_sessions
			WHERE expires > (julianday('now') - 2440587.5) * 86400000`,
		name: `SELECT 'SQLite file'`,
	},
	// There is no list of locks: one must ask for each who has it.
	mysqlDriver: {
		session:  "connection",
		sessions: `SELECT count(DISTINCT holder) FROM (` + strings.Join(mysqlHolders(), ` UNION ALL `) + `) AS locks`,
		name:     `SELECT IF(VERSION() LIKE '%MariaDB%', 'MariaDB', 'MySQL')`,
	},
}

// mysqlHolders is for each user a query for the connection that holds the user's
// lock, or NULL.
func mysqlHolders() (queries []string) {
	for _, user := range users {
		id := sqllock.Namespace(namespace).Key(user).Int64()
		queries = append(queries, fmt.Sprintf(`SELECT IS_USED_LOCK(CONCAT('latchkey.', LEFT(SHA2(DATABASE(), 256), 8), '.0.%016x')) AS holder`, uint64(id)))
	}
	return queries
}
