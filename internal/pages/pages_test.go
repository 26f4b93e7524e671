// Package pages tests the project's pages: their links resolve, the Go code in
// them compiles, and the messages, files and tests that they name exist.
package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

const root = "../.."

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

// readPages reads every page that the tests look at, by its path below root.
func readPages(t *testing.T) map[string]page {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	for _, dir := range []string{"docs", "examples", "grpcmw", "ratelimit", "sqllock"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".md" {
				name, _ := filepath.Rel(root, path)
				names = append(names, filepath.ToSlash(name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
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
		if strings.HasPrefix(name, "examples/") {
			continue // an example is a module of its own, with other imports
		}
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
