package lockdoctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// sqliteChecks are the checks of SQLite. They read the file, and set nothing.
var sqliteChecks = []check{
	{"version", sqliteVersion},
	{"file", sqliteFile},
	{"journal", sqliteJournal},
	{"timeouts", sqliteTimeouts},
	{"tables", sqliteTables},
	{"secrets", secrets},
}

// sqliteVersion checks that the library below the driver has what leases need.
func sqliteVersion(ctx context.Context, s *subject) Result {
	var version string
	if err := s.read(ctx, "SELECT sqlite_version()", &version); err != nil {
		return failed(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < 3 || major == 3 && minor < 35) {
		return wrong("SQLite "+version+" lacks RETURNING, which leases need", "Use a driver with SQLite 3.35 or newer.")
	}
	return passed("SQLite %s", version)
}

// sqliteFile checks that the database is a file of this machine that can be
// written to.
func sqliteFile(ctx context.Context, s *subject) Result {
	var file string
	if err := s.read(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'", &file); err != nil {
		return failed(err)
	}
	if file == "" {
		return wrong("the database is in memory or temporary, so no other process shares its locks", "Name a file, or use sqllock.NewMemory for one process.")
	}
	var queryOnly bool
	if err := s.read(ctx, "SELECT query_only FROM pragma_query_only", &queryOnly); err != nil {
		return failed(err)
	}
	switch {
	case queryOnly:
		return wrong("the connections can only read (query_only)", "Take query_only out of the connection string of the locks.")
	case onNetwork(filepath.Dir(file)):
		return wrong("the file is on a network file system, whose locks and shared memory SQLite cannot rely on", "Move the file to a disk of this machine, or use PostgreSQL.")
	}
	return passed("the database is a file that can be written to")
}

// sqliteJournal checks that readers do not keep Sessions from renewing. Open
// sets the journal of a new file.
func sqliteJournal(ctx context.Context, s *subject) Result {
	var mode string
	if err := s.read(ctx, "SELECT journal_mode FROM pragma_journal_mode", &mode); err != nil {
		return failed(err)
	}
	found, err := s.findSQLiteTables(ctx)
	switch {
	case err != nil:
		return failed(err)
	case mode == "wal":
		return passed("the journal is write-ahead, so readers keep no Session from renewing")
	case len(found) == 0:
		return passed("no Session has used the file yet: Open sets its journal to write-ahead")
	}
	return warning("the journal of the file is "+mode+" and not write-ahead, so a reader keeps Sessions from renewing",
		"PRAGMA journal_mode = WAL; while no other connection uses the file. If that fails, the file system shares no memory: move the file.")
}

// sqliteTimeouts checks that connections of the service wait while a Session
// writes. A Session sets its own timeout.
func sqliteTimeouts(ctx context.Context, s *subject) Result {
	var ms int
	if err := s.read(ctx, "PRAGMA busy_timeout", &ms); err != nil {
		return failed(err)
	}
	if ms < 100 {
		return warning(fmt.Sprintf("busy_timeout is %d ms, so the service's own statements fail while a Session writes", ms),
			"Set busy_timeout to 5000 in the connection string, or keep the locks in a file of their own.")
	}
	return passed("busy_timeout is %d ms", ms)
}

// findSQLiteTables describes the tables of our names in the main file.
func (s *subject) findSQLiteTables(ctx context.Context) (found []foundTable, err error) {
	conn, err := dbconn.Lend(ctx, s.db)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, `SELECT t.name, t.type, c.name, UPPER(c.type), c.pk > 0 FROM main.sqlite_master AS t, pragma_table_info(t.name, 'main') AS c
		WHERE t.type IN ('table', 'view') AND t.name LIKE 'latchkey%' ORDER BY t.name, c.cid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind, column, columnType string
		var key bool
		if err := rows.Scan(&name, &kind, &column, &columnType, &key); err != nil {
			return nil, err
		}
		if len(found) == 0 || found[len(found)-1].Table != name {
			t := foundTable{Table: name, Trusted: true, Rights: allRights}
			if kind == "table" {
				t.Kind = plainTable
			}
			found = append(found, t)
		}
		found[len(found)-1].add(column, strings.ToLower(columnType), key, strings.ToLower(strings.Join(allRights, ",")))
	}
	return found, rows.Err()
}

// sqliteTables compares the tables with those that this version makes. Types are
// not compared: SQLite does not enforce them.
func sqliteTables(ctx context.Context, s *subject) Result {
	found, err := s.findSQLiteTables(ctx)
	if err != nil {
		return failed(err)
	}
	return s.tablesResult(found)
}
