package dialect

import (
	"os"
	"strings"
	"testing"
)

// The runbook says what to do about each SQLSTATE that has words.
func TestRunbookKnowsEachReason(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for state, words := range wordsOfStates {
		if row := "| " + words + " | " + state + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/runbook.md has no row that begins with %q", row)
		}
	}
}
