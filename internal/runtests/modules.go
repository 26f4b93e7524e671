package main

import (
	"bytes"
	"cmp"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Which modules and packages of the tree have tests.

// A module is a Go module of the tree, with those of its packages that have
// tests.
type module struct {
	dir       string   // "." is the root
	goVersion string   // of its go.mod
	packages  []string // as arguments of go test: ./a/b
}

var (
	goDirective = regexp.MustCompile(`(?m)^go (\S+)$`)
	longTest    = regexp.MustCompile(`(?m)^func TestLong`)
)

// modules returns the modules of the tree. If long is true, they have only the
// packages with a test whose name begins with TestLong. The largest module
// comes first.
func modules(tree fs.FS, long bool) ([]module, error) {
	found := map[string]*module{}
	var tests []string // their files
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.Name() == "go.mod":
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			m := &module{dir: path.Dir(name)}
			if v := goDirective.FindSubmatch(text); v != nil {
				m.goVersion = string(v[1])
			}
			found[m.dir] = m
		case strings.HasSuffix(name, "_test.go"):
			tests = append(tests, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, file := range tests {
		text, err := fs.ReadFile(tree, file)
		if err != nil {
			return nil, err
		}
		if long && !longTest.Match(text) || bytes.Contains(text, []byte("//go:build ignore")) {
			continue
		}
		m := moduleOf(found, path.Dir(file))
		pkg := "./" + strings.TrimPrefix(strings.TrimPrefix(path.Dir(file), m.dir), "/")
		if !slices.Contains(m.packages, pkg) {
			m.packages = append(m.packages, pkg)
		}
	}
	var all []module
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		if m := found[dir]; len(m.packages) > 0 {
			slices.Sort(m.packages)
			all = append(all, *m)
		}
	}
	slices.SortStableFunc(all, func(a, b module) int { return cmp.Compare(len(b.packages), len(a.packages)) })
	return all, nil
}

// moduleOf returns the innermost module that contains dir.
func moduleOf(found map[string]*module, dir string) *module {
	for {
		if m := found[dir]; m != nil {
			return m
		}
		dir = path.Dir(dir)
	}
}

// folder returns the folder of a package, seen from the root of the tree.
func (m module) folder(pkg string) string { return path.Join(m.dir, pkg) }

// choose returns m with the packages whose folders match only, and not without.
func (m module) choose(only, without *regexp.Regexp) module {
	m.packages = slices.DeleteFunc(slices.Clone(m.packages), func(pkg string) bool {
		return !only.MatchString(m.folder(pkg)) || without.MatchString(m.folder(pkg))
	})
	return m
}

// tree returns the tree of the current directory.
func tree() fs.FS { return os.DirFS(filepath.Clean(".")) }
