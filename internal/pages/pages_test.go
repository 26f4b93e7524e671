// Package pages tests the project's pages: their links resolve, the Go code in
// them compiles, and the messages that they quote are in the source.
package pages

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
)

const root = "../.."

func TestMain(m *testing.M) { dbtest.Main(m) }

// readPages reads every page that the tests look at, by its path below root.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			name, _ := filepath.Rel(root, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]page{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		p := parse(string(text))
		if p.problem != "" {
			t.Errorf("%s: %s", name, p.problem)
		}
		pages[name] = p
	}
	return pages
}

func TestLinks(t *testing.T) {
	t.Parallel()
	pages := readPages(t)
	links := 0
	for _, p := range pages {
		links += len(p.links)
	}
	if links < 50 {
		t.Errorf("the pages have %d links: are these the pages?", links)
	}
	for _, problem := range brokenLinks(os.DirFS(root), pages) {
		t.Error(problem)
	}
}

func TestGoCode(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	blocks := 0
	for name, p := range readPages(t) {
		for _, b := range p.blocks {
			blocks++
			if err := c.check(b); err != nil {
				t.Errorf("%s:%d: %v", name, b.line, err)
			}
		}
	}
	if blocks < 15 {
		t.Errorf("the pages have %d blocks of Go: are these the pages?", blocks)
	}
}

// prefixes is how messages of the kit begin.
var prefixes = []string{
	"sqllock: ", "election: ", "lockwatch: ", "shard: ", "watermark: ",
	"ratelimit: ", "httpmw: ", "grpcmw: ", "idempotency: ",
}

// A message that a page quotes, as a log line or an error's text, is in the
// source. Where a value takes its place in the message the quote ends.
func TestQuotedMessages(t *testing.T) {
	t.Parallel()
	source := readCode(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
	for name, p := range readPages(t) {
		for _, q := range p.quotes {
			if why := unquoted(q.text, source); why != "" {
				t.Errorf("%s:%d: %s", name, q.line, why)
			}
		}
	}
}

// unquoted says why quote is not a message of source; empty if it is one, or no
// message at all.
func unquoted(quote, source string) string {
	for _, prefix := range prefixes {
		if strings.HasPrefix(quote, prefix) && !strings.Contains(source, quote) {
			return fmt.Sprintf("the source has no message %q", quote)
		}
	}
	return ""
}

func TestUnquoted(t *testing.T) {
	t.Parallel()
	const source = `errors.New("sqllock: key is held")`
	for quote, ok := range map[string]bool{
		"sqllock: key is held": true,
		"sqllock: key is":      true,
		"sqllock.ErrHeld":      true,
		"sqllock: key is busy": false,
	} {
		if why := unquoted(quote, source); (why == "") != ok {
			t.Errorf("%q: %q", quote, why)
		}
	}
}
