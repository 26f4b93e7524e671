package main

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"
)

// sqlitePath returns the path of a file of SQLite that address names, or "". The
// driver's own form, "file:…", is not one of these.
func sqlitePath(address string) string {
	if rest, is := strings.CutPrefix(address, "sqlite:"); is {
		return strings.TrimPrefix(rest, "//")
	}
	for _, ending := range []string{".db", ".sqlite", ".sqlite3"} {
		if strings.HasSuffix(address, ending) {
			return address
		}
	}
	return ""
}

// fileOf returns the path in the driver's own form, "file:…", or "" for a database
// in memory.
func fileOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Query().Get("mode") == "memory" {
		return ""
	}
	path, err := url.PathUnescape(u.Opaque)
	if err != nil || path == ":memory:" {
		return ""
	}
	return u.Path + path // one of them is empty
}

// isMissing reports whether file does not exist. The driver would make it, and an
// empty database has no lock and no fault.
func isMissing(file string) bool {
	if file == "" {
		return false
	}
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// openSQLite opens a file. A connection waits up to 5 seconds for the
// transaction of another one; the default is to fail at once.
func (d *database) openSQLite(path string) (err error) {
	if path != ":memory:" {
		d.file = path
	}
	d.DB, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	return err
}
