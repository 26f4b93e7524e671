package campaign

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// What a document has around the table.
const (
	beginMark = "<!-- campaign -->"
	endMark   = "<!-- end of campaign -->"
)

// errMarks: a document does not say where the table belongs.
var errMarks = errors.New("the table belongs between a line " + beginMark + " and a later line " + endMark + ", each once")

// CanPaste reports, before a campaign, what would keep Paste from doing its work
// after it.
func CanPaste(name string) error {
	_, _, err := around(name)
	return err
}

// Paste replaces what stands between the two marks in the document of this name
// by text.
func Paste(name, text string) error {
	before, after, err := around(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(before+"\n\n"+text+"\n"+after), 0o644)
}

// around is the document of this name up to the first mark and from the second.
func around(name string) (before, after string, err error) {
	document, err := os.ReadFile(name)
	if err != nil {
		return "", "", fmt.Errorf("campaign: %w", err)
	}
	text := string(document)
	from, to := strings.Index(text, beginMark)+len(beginMark), strings.Index(text, endMark)
	if strings.Count(text, beginMark) != 1 || strings.Count(text, endMark) != 1 || to < from {
		return "", "", fmt.Errorf("campaign: %s: %w", name, errMarks)
	}
	return text[:from], text[to:], nil
}
