package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each file api/v0.txt says what its module exports. A name that stood there in
// an earlier commit and that has gone must be named in CHANGELOG.md, more often
// than in that commit. Earlier is the commit below, its parent, and the newest
// release: those of them that this clone has.
func TestAPI(t *testing.T) {
	t.Parallel()
	dirs, err := userModules(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	tree := place{dir: root}
	earlier := []string{"HEAD", "HEAD~1"}
	if tag, err := tree.run(t.Context(), "git", "describe", "--tags", "--abbrev=0", "--match", "v*"); err == nil {
		earlier = append(earlier, strings.TrimSpace(tag))
	}
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			lines, err := apiOf(t.Context(), filepath.Join(root, dir))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.ToSlash(filepath.Join(dir, apiFile))
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil && len(lines) > 0 {
				t.Fatal(err)
			}
			written := slices.Collect(strings.Lines(string(text)))
			for i := range written {
				written[i] = strings.TrimSpace(written[i])
			}
			if !slices.Equal(lines, written) {
				t.Errorf("%s differs from the code: run make api, and write a line into CHANGELOG.md for each name that went.\nOnly in the code:\n%s\nOnly in the file:\n%s",
					file, without(lines, written), without(written, lines))
			}
			for _, commit := range earlier {
				before, err := tree.run(t.Context(), "git", "show", commit+":"+file)
				if err != nil {
					continue // there is no such commit, or it had no such file
				}
				for where, name := range gone(before, strings.Join(lines, "\n")) {
					word := regexp.MustCompile(`\b` + name + `\b`)
					old, err := tree.run(t.Context(), "git", "show", commit+":CHANGELOG.md")
					if err != nil || len(word.FindAllString(old, -1)) >= len(word.FindAll(log, -1)) {
						t.Errorf("%s is gone, and CHANGELOG.md does not say so", where)
					}
				}
			}
		})
	}
}

// without returns the lines of a that are not in b.
func without(a, b []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) }), "\n")
}

// An onlyIO imports the one package of TestExported, without the go command.
type onlyIO struct{}

func (onlyIO) Import(string) (*types.Package, error) {
	const source = `package io

type Reader interface { Read([]byte) (int, error) }
type Writer interface { Write([]byte) (int, error) }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return new(types.Config).Check("io", fset, []*ast.File{file}, nil)
}

func TestExported(t *testing.T) {
	t.Parallel()
	const source = `package p

import "io"

const Limit = 3
const hidden = 4
const Red Color = 1
var Err error
type Color int
func (Color) String() string { return "" }
type Alias = []Color
type T struct { Name string; f func(); io.Reader }
func (t *T) Do(f func(n int) (ok bool), more ...Color) {}
func (t *T) hidden() {}
type Doer interface { Do(x int) error }
type Func func(w io.Writer) (n int)
func Map[A any, B comparable](list []A, f func(a A) B) []B { return nil }
func hiddenToo() {}
`
	want := strings.ReplaceAll(`func Map[A any, B comparable]([]A, func(A) B) []B
const Limit untyped int = 3
const Red Color = 1
method (*T) Do(func(int) bool, ...Color)
method (Color) String() string
method (T) Read([]byte) (int, error)
type Alias = []Color
type Color int
type Doer interface
type Doer interface, Do(int) error
type Func func(io.Writer) int
type T struct
type T struct, Reader io.Reader
type T struct, Name string
var Err error`, "\n", "\npkg p, ")
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	config := types.Config{Importer: onlyIO{}}
	pkg, err := config.Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := exported(pkg)
	slices.Sort(got)
	wanted := strings.Split("pkg p, "+want, "\n")
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("only exported:\n%s\nonly wanted:\n%s", without(got, wanted), without(wanted, got))
	}
}

func TestGone(t *testing.T) {
	t.Parallel()
	tests := []struct{ before, now, want string }{
		{"pkg p, func A(int)", "pkg p, func A(string)", ""}, // changed, and still there
		{"pkg p, func A()", "pkg p/q, func A()", "A"},
		{"pkg p, method (*T) A()", "pkg p, method (T) B()", "A"},
		{"pkg p, type T struct\npkg p, type T struct, F int", "pkg p, type T struct", "F"},
		{"pkg p, type T interface, A() error", "pkg p, type T interface", "A"},
		{"pkg p, const A Color = 1", "pkg p, const A Color = 2", ""},
		{"", "pkg p, var A int", ""},
	}
	for _, tt := range tests {
		got := ""
		for _, name := range gone(tt.before, tt.now) {
			got += name
		}
		if got != tt.want {
			t.Errorf("from %q to %q: %q is gone, want %q", tt.before, tt.now, got, tt.want)
		}
	}
}
