package pages

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The query for holders in docs/runbook.md finds every holder of this database,
// with the same numbers as in Go.
func TestHoldersQuery(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(string(page), "```sql\n")
	query, _, ok := strings.Cut(query, ";\n```")
	if !ok {
		t.Fatal("the page has no query")
	}
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		s := dbtest.Session(t, driver, dsn)
		elsewhere := dbtest.Session(t, driver, pgtest.Database(t))
		if _, err := elsewhere.TryLock(t.Context(), sqllock.ID(1)); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for written, key := range map[string]sqllock.Key{
			"-1637517681989069423":    sqllock.Namespace("export").Key("user-1"),
			"-3":                      sqllock.ID(-3),
			"9223372036854775807":     sqllock.ID(math.MaxInt64),
			"-9223372036854775808":    sqllock.ID(math.MinInt64),
			"-7, 8":                   sqllock.Pair(-7, 8),
			"-2147483648, 2147483647": sqllock.Pair(math.MinInt32, math.MaxInt32),
		} {
			want[written] = true
			if _, err := s.TryLock(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := db.Query("SELECT key, application_name FROM (" + query + ") holders")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var key, application string
			if err := rows.Scan(&key, &application); err != nil {
				t.Fatal(err)
			}
			if !want[key] || !strings.HasSuffix(application, "latchkey") {
				t.Errorf("the query finds %q of %q", key, application)
			}
			delete(want, key)
		}
		if err := rows.Err(); err != nil || len(want) > 0 {
			t.Errorf("the query does not find %v; %v", want, err)
		}
	})
}

// Each reason in the runbook's tables is a text of the source, or the system's.
func TestReasonsOfTheRunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## The reasons in an error or a log line\n")
	section, _, _ = strings.Cut(section, "\n## ")
	source := readCode(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
	rows := 0
	for line := range strings.Lines(section) {
		reason, isRow := strings.CutPrefix(line, "| ")
		reason, _, _ = strings.Cut(reason, " |")
		if !isRow || reason == "reason" || strings.HasPrefix(reason, "*") {
			continue
		}
		rows++
		if !strings.Contains(source, strings.ReplaceAll(reason, `\*`, "*")) {
			t.Errorf("the source has no reason %q", reason)
		}
	}
	if rows < 40 {
		t.Errorf("%d reasons: is this the section?", rows)
	}
}
