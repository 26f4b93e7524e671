package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/quickstart/internal/demo"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	programtest.Main(main)
	os.Exit(leaktest.Check(mariadbtest.Close(pgtest.Main(m))))
}

// A place is where the program keeps its locks.
type place struct {
	name    string
	is      string                  // what the program calls it
	session string                  // what a process has there
	url     func(*testing.T) string // "": the program makes a place of its own
}

var places = []place{
	{"no database given", "SQLite file", "session", func(*testing.T) string { return "" }},
	{"SQLite", "SQLite file", "session", func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	}},
	{"PostgreSQL", "PostgreSQL", "connection", func(t *testing.T) string { return pgtest.Database(t) }},
	{"MariaDB", "MariaDB", "connection", func(t *testing.T) string {
		return "mysql://" + strings.NewReplacer("tcp(", "", ")", "").Replace(mariadbtest.Database(t))
	}},
}

// eachPlace runs test on each place, at the same time.
func eachPlace(t *testing.T, places []place, test func(t *testing.T, p place, databaseURL string)) {
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := p.url(t)
			test(t, p, databaseURL)
			if databaseURL == "" {
				return
			}
			lockertest.Eventually(t, "no session of latchkey is left in the database", func() bool {
				n, err := demo.Sessions(databaseURL, namespace)
				return err == nil && n == 0
			})
		})
	}
}
