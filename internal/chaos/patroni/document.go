//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// The marks around the table in a document.
const (
	beginMark = "<!-- campaign -->"
	endMark   = "<!-- end of campaign -->"
)

// errMarks: a document does not say where the table belongs.
var errMarks = errors.New("the table belongs between a line " + beginMark + " and a later line " + endMark + ", each once")

// checkDocument reports, before a campaign, what would keep writeDocument from
// working after it.
func checkDocument(name string) error {
	_, _, err := aroundTable(name)
	return err
}

// writeDocument replaces the text between the marks of a document.
func writeDocument(name, text string) error {
	before, after, err := aroundTable(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(before+"\n\n"+text+"\n"+after), 0o644)
}

// aroundTable returns a document up to the first mark and from the second.
func aroundTable(name string) (before, after string, err error) {
	document, err := os.ReadFile(name)
	if err != nil {
		return "", "", fmt.Errorf("patroni: %w", err)
	}
	before, rest, _ := strings.Cut(string(document), beginMark)
	_, after, found := strings.Cut(rest, endMark)
	if !found || strings.Count(string(document), beginMark) != 1 || strings.Count(string(document), endMark) != 1 {
		return "", "", fmt.Errorf("patroni: %s: %w", name, errMarks)
	}
	return before + beginMark, endMark + after, nil
}
