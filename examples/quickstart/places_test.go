package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/examples/quickstart/internal/demo"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A place is where the program keeps its locks.
type place struct {
	name    string
	is      string                  // what the program calls it
	session string                  // what a process has there
	url     func(*testing.T) string // "": the program makes a place of its own
}

var throwaway = place{"no database given", "SQLite file", "session", func(*testing.T) string { return "" }}

// given are the places that exist before the program runs and after.
var given = []place{
	{"SQLite", "SQLite file", "session", func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	}},
	{"PostgreSQL", "PostgreSQL", "connection", func(t *testing.T) string { return pgtest.Database(t) }},
	{"MariaDB", "MariaDB", "connection", func(t *testing.T) string { return mariadbtest.Database(t) }},
}

// nothingHeld polls until nothing of latchkey is left in a database.
func nothingHeld(t *testing.T, databaseURL string) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		n, err := demo.Sessions(databaseURL, namespace)
		if err == nil && n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions are left, %v", n, err)
		}
	}
}
