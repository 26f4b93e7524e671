package mutants

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A page that was written has its times again, also beside cells with a bar. It
// matches until a patch changes, comes or goes.
func TestPageTimes(t *testing.T) {
	t.Parallel()
	name := filepath.Join(files(t, map[string]string{"page.md": "# Bugs\n\n" + beginMark + "\n" + endMark + "\nend\n"}), "page.md")
	mutants := []Mutant{
		{Name: "one", Wrong: "It is a|b.", From: "a/b #1", Catch: Command{Words: strings.Fields("go test ./x -count=1 -run ^TestA$|^TestB$")}},
		{Name: "two", Wrong: "It is two.", Catch: Command{strings.Fields("go test . -count=1 -run TestC$"), "y"},
			Campaign: Command{strings.Fields("go run . -rows 3 -faults 2"), campaignDir}},
	}
	p, err := OpenPage(name)
	if err != nil {
		t.Fatal(err)
	}
	if p.Matches(mutants) {
		t.Error("a page without a table matches")
	}
	want := map[string]Times{"one": {Test: 1500 * time.Millisecond}, "two": {Test: time.Second, Campaign: 70 * time.Second}}
	if err := p.Write(mutants, want); err != nil {
		t.Fatal(err)
	}
	if p, err = OpenPage(name); err != nil {
		t.Fatal(err)
	}
	times := p.Times()
	if times["one"] != want["one"] || times["two"] != want["two"] || !p.Matches(mutants) {
		t.Errorf("the times are %v, want %v; matches: %t", times, want, p.Matches(mutants))
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"2 bugs, of which 1 are mistakes of other projects.",
		"| `one` | It is a\\|b. | a/b #1 | x: `TestA$\\|^TestB` | 1.5 |  |  |",
		"| `two` | It is two. |  | y: `TestC` | 1.0 | `-rows 3 -faults 2` | 70.0 |",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	changed := []Mutant{mutants[0], mutants[1]}
	changed[1].Wrong = "It is three."
	if p.Matches(changed) || p.Matches(mutants[:1]) {
		t.Error("a page matches other patches")
	}
	for _, text := range []string{"", endMark + beginMark, beginMark, beginMark + endMark + beginMark + endMark} {
		if _, err := OpenPage(filepath.Join(files(t, map[string]string{"page.md": text}), "page.md")); !errors.Is(err, errMarks) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
