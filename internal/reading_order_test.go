package internal_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxUp bounds the pairs of files of sqllock in which the later file names
// something that the earlier one declares.
const maxUp = 25

// The page how-it-works.md lists the files of package sqllock in the order in
// which to read them: from what a user calls down to the ground. The list is
// complete, and nearly every reference points down.
func TestReadingOrder(t *testing.T) {
	const dir = "../sqllock"
	page, err := os.ReadFile("../docs/how-it-works.md")
	if err != nil {
		t.Fatal(err)
	}
	order := listedFiles(string(page))
	for _, problem := range compareLists(order, productFiles(t, dir)) {
		t.Errorf("docs/how-it-works.md, Where to look: %s", problem)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range order {
		if ok, err := gobuild.Default.MatchFile(dir, name); err != nil || !ok {
			continue // it is for another system, or missing, which is reported above
		}
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	up, err := referencesUp(fset, files, order, exportData(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d references run up", len(up))
	if len(up) > maxUp {
		t.Errorf("%d references run up, at most %d may:\n%s", len(up), maxUp, strings.Join(up, "\n"))
	}
}

// listedFiles returns the Go files of the tables under the heading "Where to
// look", in their order. The first cell of a row holds one file or several.
func listedFiles(page string) (files []string) {
	_, section, _ := strings.Cut(page, "\n## Where to look\n")
	section, _, _ = strings.Cut(section, "\n## ")
	file := regexp.MustCompile("`([^`]+\\.go)`")
	for line := range strings.Lines(section) {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		if !isRow || !strings.HasPrefix(line, "|") {
			continue
		}
		for _, m := range file.FindAllStringSubmatch(cell, -1) {
			files = append(files, m[1])
		}
	}
	return files
}

// compareLists reports each file that is missing from listed, that is listed
// twice, or that does not exist.
func compareLists(listed, exist []string) (problems []string) {
	times := map[string]int{}
	for _, f := range listed {
		times[f]++
	}
	for _, f := range exist {
		if times[f] == 0 {
			problems = append(problems, f+" is missing")
		}
	}
	for _, f := range slices.Sorted(maps.Keys(times)) {
		if times[f] > 1 {
			problems = append(problems, f+" is listed twice")
		}
		if !slices.Contains(exist, f) {
			problems = append(problems, f+" does not exist")
		}
	}
	return problems
}

// productFiles returns the names of the Go files of dir that are not tests.
func productFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no Go files in", dir, err)
	}
	for _, p := range paths {
		if name := filepath.Base(p); !strings.HasSuffix(name, "_test.go") {
			names = append(names, name)
		}
	}
	return names
}

// referencesUp type-checks files as one package, and returns the pairs of files
// in which the later one, by order, names something that the earlier one
// declares. Methods and fields count as well as names of the package. Each
// element is a pair with the names.
func referencesUp(fset *token.FileSet, files []*ast.File, order []string, imports types.Importer) ([]string, error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports}).Check("checked", fset, files, info)
	if err != nil {
		return nil, err
	}
	place := map[string]int{}
	for i, name := range order {
		place[name] = i
	}
	type pair struct{ from, to string }
	names := map[pair][]string{}
	for ident, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		p := pair{filepath.Base(fset.Position(ident.Pos()).Filename), filepath.Base(fset.Position(object.Pos()).Filename)}
		if place[p.from] > place[p.to] {
			names[p] = append(names[p], object.Name())
		}
	}
	var up []string
	for _, p := range slices.SortedFunc(maps.Keys(names), func(a, b pair) int {
		return cmp.Or(cmp.Compare(place[a.from], place[b.from]), cmp.Compare(place[a.to], place[b.to]))
	}) {
		slices.Sort(names[p])
		up = append(up, fmt.Sprintf("%s names of %s: %s", p.from, p.to, strings.Join(slices.Compact(names[p]), " ")))
	}
	return up, nil
}

// exportData returns an importer of the packages that the package in dir needs.
// It reads what the compiler has written of them, which the build cache keeps.
func exportData(t *testing.T, dir string) types.Importer {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export", ".")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		t.Fatal("go list: ", err)
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal("go list: ", err)
		}
		exports[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
}

// The counter counts a pair of files once, by what the later file names of the
// earlier one.
func TestReferencesUp(t *testing.T) {
	sources := map[string]string{
		"top.go": `package p
type Top struct{ field int }
func (Top) Method() {}
func use() { low(); middle() }`,
		"middle.go": `package p
func middle() { low(); var top Top; top.Method(); top.Method() }`,
		"low.go": `package p
type holder struct{ top any }
func low() { local := 1; _ = local; _ = Top{field: 1}.field; middle() }`,
		"ground.go": `package p
func ground(h holder) int { return len("a") }
func alone() { h := struct{ field int }{}; _ = h.field }`,
	}
	tests := []struct {
		name  string
		order string
		want  []string
	}{
		{"from the ground up", "ground.go low.go middle.go top.go", []string{
			"middle.go names of low.go: low",
			"top.go names of low.go: low",
			"top.go names of middle.go: middle",
		}},
		{"from the user down", "top.go middle.go low.go ground.go", []string{
			"middle.go names of top.go: Method Top",
			"low.go names of top.go: Top field",
			"low.go names of middle.go: middle",
			"ground.go names of low.go: holder",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fset := token.NewFileSet()
			order := strings.Fields(tt.order)
			var files []*ast.File
			for _, name := range order {
				f, err := parser.ParseFile(fset, name, sources[name], parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			got, err := referencesUp(fset, files, order, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("up:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// A file that is missing, listed twice or gone is found.
func TestListedFiles(t *testing.T) {
	const page = "# Page\n\n| `not.go` | before |\n\n## Where to look\n\nText with `no.go`.\n\n| file | holds |\n|---|---|\n" +
		"| `a.go` | `x.go` is in the other cell |\n| `b.go`, `c.go` | two |\n\n### More\n\n| `a.go` | again |\n| `gone.go` | none |\n\n## Next\n\n| `after.go` | after |\n"
	listed := listedFiles(page)
	if want := []string{"a.go", "b.go", "c.go", "a.go", "gone.go"}; !slices.Equal(listed, want) {
		t.Errorf("listedFiles: %q, want %q", listed, want)
	}
	want := []string{"d.go is missing", "a.go is listed twice", "gone.go does not exist"}
	if got := compareLists(listed, []string{"a.go", "b.go", "c.go", "d.go"}); !slices.Equal(got, want) {
		t.Errorf("compareLists: %q, want %q", got, want)
	}
}
