package main

import (
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	// Any driver that database/sql has for these databases will do.
	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// A service has one kind of database, and one line in place of this file:
//
//	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))

// errDatabaseURL does not show the URL, which may contain a password.
var errDatabaseURL = errors.New("DATABASE_URL is not understood: it may be postgres://user:password@host:port/database, " +
	"mysql://user:password@tcp(host:port)/database or sqlite:/path/to/file; without it there is a SQLite file")

// openDatabase opens the database of a URL, or a SQLite file if there is none.
// PostgreSQL and MariaDB need one connection for each thousand locks held, up to
// four, and briefly one more.
func openDatabase(databaseURL string) (*sql.DB, error) {
	if databaseURL == "" {
		databaseURL = "sqlite:" + filepath.Join(os.TempDir(), "latchkey-quickstart.db")
	}
	driver, dsn := "", databaseURL
	switch scheme, rest, _ := strings.Cut(databaseURL, ":"); scheme {
	case "postgres", "postgresql":
		driver = "pgx"
	case "sqlite": // a connection waits up to 5 seconds for the transaction of another
		driver, dsn = "sqlite", "file:"+(&url.URL{Path: strings.TrimPrefix(rest, "//")}).EscapedPath()+"?_pragma=busy_timeout(5000)"
	case "mysql", "mariadb":
		driver, dsn = "mysql", strings.TrimPrefix(rest, "//")
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, errDatabaseURL // the driver's own error may show the URL
	}
	db.SetMaxOpenConns(5)
	return db, nil
}
