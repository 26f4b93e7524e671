package pages

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"
)

// brokenLinks returns what is wrong with the relative links of pages. The keys
// are slash-separated paths below the root of tree.
func brokenLinks(tree fs.FS, pages map[string]page) []string {
	var problems []string
	for name, p := range pages {
		for _, l := range p.links {
			if why := broken(tree, pages, name, l.target); why != "" {
				problems = append(problems, fmt.Sprintf("%s:%d: the link to %s: %s", name, l.line, l.target, why))
			}
		}
	}
	return problems
}

// broken says why a link on the page name leads nowhere, and returns "" for a
// good link. It does not look at other sites.
func broken(tree fs.FS, pages map[string]page, name, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	if target == "" {
		return "it is empty"
	}
	file, anchor, hasAnchor := strings.Cut(target, "#")
	to := name
	if file != "" {
		to = path.Join(path.Dir(name), file)
	}
	if _, err := fs.Stat(tree, to); err != nil {
		return "there is no such file"
	}
	if !hasAnchor {
		return ""
	}
	p, isPage := pages[to]
	if !isPage {
		return "anchors are checked on pages only"
	}
	if !p.anchors[anchor] {
		return "the page has no such heading"
	}
	return ""
}

func TestBrokenLinks(t *testing.T) {
	t.Parallel()
	const target = "# One\n\n## The `Lock`, and [more](one.md)!\n\n## One\n"
	tests := []struct {
		name, text, want string
	}{
		{"a page", "[a](one.md)", ""},
		{"an image", "![a](one.md)", ""},
		{"an anchor", "[a](one.md#one)", ""},
		{"an anchor with punctuation", "[a](one.md#the-lock-and-more)", ""},
		{"an anchor of the page itself", "# Here\n[a](#here)", ""},
		{"no such page", "one\n[a](none.md)", "docs/page.md:2: the link to none.md: there is no such file"},
		{"in HTML", `<img src="none.svg" alt="">`, "docs/page.md:1: the link to none.svg: there is no such file"},
		{"by reference", "[a][b]\n\n[b]: none.md", "docs/page.md:3: the link to none.md: there is no such file"},
		{"no such anchor", "[a](one.md#two)", "docs/page.md:1: the link to one.md#two: the page has no such heading"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := fstest.MapFS{"docs/page.md": {}, "docs/one.md": {}, "docs/x.go": {}}
			pages := map[string]page{"docs/page.md": parse(tt.text), "docs/one.md": parse(target)}
			got := strings.Join(brokenLinks(tree, map[string]page{"docs/page.md": pages["docs/page.md"], "docs/one.md": {anchors: pages["docs/one.md"].anchors}}), "\n")
			if got != tt.want {
				t.Errorf("it says %q; want %q", got, tt.want)
			}
		})
	}
}
