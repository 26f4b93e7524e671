// Package protocol reads the tables of docs/protocol.md, for the tests that
// compare them with the code.
package protocol

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Table returns the cells of the table whose first column is called first, row by
// row. Backquotes and asterisks around a cell are left out.
func Table(tb testing.TB, first string) (rows [][]string) {
	tb.Helper()
	path, up := filepath.Join("docs", "protocol.md"), ""
	for range 8 { // folders between a test and the root
		if _, err := os.Stat(up + path); err == nil {
			break
		}
		up += "../"
	}
	page, err := os.ReadFile(up + path)
	if err != nil {
		tb.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n| "+first+" |")
	for i, line := range strings.Split(text, "\n") {
		if i < 2 { // the head, and the line below it
			continue
		}
		if !strings.HasPrefix(line, "|") {
			break
		}
		var row []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
			row = append(row, strings.Trim(cell, " `*"))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		tb.Fatalf("docs/protocol.md has no table that begins with %q", first)
	}
	return rows
}
