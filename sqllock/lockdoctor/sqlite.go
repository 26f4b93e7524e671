package lockdoctor

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// sqliteChecks are the checks of SQLite. They read the file, and set nothing.
var sqliteChecks = []check{
	{name: "version", examine: sqliteVersion},
	{name: "file", examine: sqliteFile},
	{name: "journal", examine: sqliteJournal, needs: (*subject).find},
	{name: "timeouts", examine: sqliteTimeouts},
	{name: "tables", examine: tables, needs: (*subject).find},
	{name: "secrets", examine: secrets, needs: (*subject).find},
}

// sqliteVersion checks that the library below the driver has what leases need.
func sqliteVersion(ctx context.Context, s *subject) (fine string, err error) {
	var version string
	err = s.read(ctx, "SELECT sqlite_version()", &version)
	var major, minor int
	if _, scanErr := fmt.Sscanf(version, "%d.%d", &major, &minor); scanErr == nil && (major < 3 || major == 3 && minor < 35) {
		s.wrong("SQLite "+version+" lacks RETURNING, which leases need", "Use a driver with SQLite 3.35 or newer.")
	}
	return "SQLite " + version, err
}

// sqliteFile checks that the database is a file of this machine that can be
// written to.
func sqliteFile(ctx context.Context, s *subject) (fine string, err error) {
	var file string
	var queryOnly bool
	err = s.read(ctx, "SELECT file, query_only FROM pragma_database_list, pragma_query_only WHERE name = 'main'", &file, &queryOnly)
	switch {
	case err != nil:
		return "", err
	case file == "":
		s.wrong("the database is in memory or temporary, so no other process shares its locks", "Name a file, or use sqllock.NewMemory for one process.")
	case queryOnly:
		s.wrong("the connections can only read (query_only)", "Take query_only out of the connection string of the locks.")
	case onNetwork(filepath.Dir(file)):
		s.wrong("the file is on a network file system, whose locks and shared memory SQLite cannot rely on", "Move the file to a disk of this machine, or use PostgreSQL.")
	}
	return "the database is a file that can be written to", nil
}

// sqliteJournal checks that readers do not keep Sessions from renewing. Open
// sets the journal of a new file.
func sqliteJournal(ctx context.Context, s *subject) (fine string, err error) {
	var mode string
	err = s.read(ctx, "SELECT journal_mode FROM pragma_journal_mode", &mode)
	switch {
	case err != nil || mode == "wal":
		return "the journal is write-ahead, so readers keep no Session from renewing", err
	case !slices.ContainsFunc(s.tables, func(t table) bool { return t.found }):
		return "no Session has used the file yet: Open sets its journal to write-ahead", nil
	}
	s.warn("the journal of the file is "+mode+" and not write-ahead, so a reader keeps Sessions from renewing",
		"PRAGMA journal_mode = WAL; while no other connection uses the file. If that fails, the file system shares no memory: move the file.")
	return "", nil
}

// sqliteTimeouts checks that connections of the service wait while a Session
// writes. A Session sets its own timeout.
func sqliteTimeouts(ctx context.Context, s *subject) (fine string, err error) {
	var ms int
	if err := s.read(ctx, "PRAGMA busy_timeout", &ms); err != nil {
		return "", err
	}
	if ms < 100 {
		s.warn(fmt.Sprintf("busy_timeout is %d ms, so the service's own statements fail while a Session writes", ms),
			"Set busy_timeout to 5000 in the connection string, or keep the locks in a file of their own.")
	}
	return fmt.Sprintf("busy_timeout is %d ms", ms), nil
}
