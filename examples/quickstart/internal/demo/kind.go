package demo

import (
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A kind is how the demonstration looks into a kind of database.
type kind struct {
	session  string // what a process has there for all its locks
	sessions string // query: how many of these there are
	name     string // query: what to call the database
}

// kindOf returns the kind of database that a driver is for.
func kindOf(driver, namespace string) kind {
	if driver == mysqlDriver {
		return mysqlKind(namespace)
	}
	return kinds[driver]
}

var kinds = map[string]kind{
	// A Session adds its name to the application's.
	pgxDriver: {
		session: "connection",
		sessions: `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name LIKE '%latchkey'`,
		name: `SELECT split_part(version(), ' ', 1)`,
	},
	// A Session borrows a connection for each statement. A row stands for the
	// Session, until a time in milliseconds.
	sqliteDriver: {
		session: "session",
		sessions: `SELECT count(*) FROM latchkey_sessions
			WHERE expires > (julianday('now') - 2440587.5) * 86400000`,
		name: `SELECT 'SQLite file'`,
	},
}

// mysqlKind is MariaDB or MySQL, which has no list of locks. So it queries the
// holder of each user's lock.
func mysqlKind(namespace string) kind {
	return kind{
		session:  "connection",
		sessions: `SELECT count(DISTINCT holder) FROM (` + strings.Join(mysqlHolders(namespace), ` UNION ALL `) + `) AS locks`,
		name:     `SELECT IF(VERSION() LIKE '%MariaDB%', 'MariaDB', 'MySQL')`,
	}
}

// mysqlHolders returns for each user a query for the connection that holds the
// user's lock, or NULL.
func mysqlHolders(namespace string) (queries []string) {
	for _, user := range users {
		id := sqllock.Namespace(namespace).Key(user).Int64()
		queries = append(queries, fmt.Sprintf(`SELECT IS_USED_LOCK(CONCAT('latchkey.', LEFT(SHA2(DATABASE(), 256), 8), '.0.%016x')) AS holder`, uint64(id)))
	}
	return queries
}
