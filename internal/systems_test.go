package internal_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// systemRows has the files of the public packages, and of the engine below them, that differ between systems.
// Each is with the beginning of its row in the table of docs/production.md.
var systemRows = map[string]string{
	"internal/dialect/dbconn/peek_unix.go":  "a closed connection is noticed",
	"internal/dialect/dbconn/peek_other.go": "a closed connection is noticed",
	"sqllock/lockdoctor/session.go":         "a closed connection is noticed",
	"internal/session/clock_linux.go":       "`Lock.Err` after the machine was suspended",
	"internal/session/clock_other.go":       "`Lock.Err` after the machine was suspended",
	"sqllock/lockdoctor/network_linux.go":   "the doctor finds a SQLite file on a network file system",
	"sqllock/lockdoctor/network_other.go":   "the doctor finds a SQLite file on a network file system",

	"sqllock/cmd/latchkey/guard_linux.go":     "`latchkey run`",
	"sqllock/cmd/latchkey/child_linux.go":     "`latchkey run`",
	"sqllock/cmd/latchkey/signals_linux.go":   "`latchkey run`",
	"sqllock/cmd/latchkey/supervise_linux.go": "`latchkey run`",
	"sqllock/cmd/latchkey/run_other.go":       "`latchkey run`",
}

// differs matches what makes a file differ between systems, in its text.
var (
	differs       = regexp.MustCompile(`(?m)^//go:build .|\bruntime\.GOOS\b`)
	differsByName = regexp.MustCompile(`_(linux|windows|darwin|freebsd)\.go$`)
)

// The table of what differs between systems has a row for each file that
// differs.
func TestSystemsTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, row := range systemRows {
		if !strings.Contains(string(page), "\n| "+row) {
			t.Errorf("docs/production.md has no row %q, for %s", row, file)
		}
	}
	var found []string
	for _, dir := range []string{"sqllock", "ratelimit", "httpmw", "grpcmw", "internal/dialect/dbconn", "internal/session"} {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path) //nolint:gosec // of this tree
			if differsByName.MatchString(path) || differs.Match(text) {
				name, _ := filepath.Rel("..", path)
				found = append(found, filepath.ToSlash(name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(maps.Keys(systemRows)); !slices.Equal(found, want) {
		t.Errorf("these files differ between systems:\n%s\nthe table is written for these:\n%s", strings.Join(found, "\n"), strings.Join(want, "\n"))
	}
}
