package pages

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The marks that a Go block may have, in an HTML comment on the line above its
// fence:
//
//   - "go: does not compile"
//   - "go: is in PATH": the code needs a module that this one does not. It is a
//     part of the file at PATH below the root, which the tests of its own module
//     compile.
const (
	doesNotCompile = "does not compile"
	isIn           = "is in "
)

// A checker type-checks the Go blocks of pages against the module.
//
// Invariant: after newChecker it starts no process and reads only files of the
// build cache.
type checker struct {
	fset     *token.FileSet
	packages types.Importer
}

// newChecker makes a checker. It runs one go command, which compiles what is not
// in the build cache, and which needs no network.
func newChecker(t *testing.T) *checker {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	for _, path := range imports {
		args = append(args, path)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOPROXY=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	fset := token.NewFileSet()
	return &checker{fset, importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file := exports[path]
		if file == "" {
			return nil, fmt.Errorf("package %s is not in the table of imports", path)
		}
		return os.Open(filepath.Clean(file))
	})}
}

// check returns what is wrong with a block, or nil.
func (c *checker) check(b block) error {
	if path, ok := strings.CutPrefix(b.mark, isIn); ok {
		return partOf(filepath.Join(root, filepath.FromSlash(path)), b.code)
	}
	err := c.compile(b.code)
	switch b.mark {
	case "":
		return err
	case doesNotCompile:
		if err == nil {
			return errors.New("it compiles, and is marked as code that does not")
		}
		return nil
	}
	return fmt.Errorf("unknown mark %q: it is neither %q nor %q", b.mark, doesNotCompile, isIn+"PATH")
}

// partOf reports whether the lines of code follow each other in the file at
// path. Indentation and empty lines do not count.
func partOf(path, code string) error {
	file, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(flush(string(file)), flush(code)) {
		return fmt.Errorf("the code is not in %s", path)
	}
	return nil
}

// flush is text without indentation and empty lines. It begins and ends with a
// line break, so that only whole lines match.
func flush(text string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// compile type-checks a whole file, declarations, or statements. Names that the
// code does not declare are those of imports and of ambient.
func (c *checker) compile(code string) error {
	if _, err := parser.ParseFile(token.NewFileSet(), "", code, parser.PackageClauseOnly); err == nil {
		_, err := c.typeCheck(code, true)
		return err
	}
	body, err := wrap(code)
	if err != nil {
		return err
	}
	missing, err := c.typeCheck("package page\n"+body, false)
	if len(missing) == 0 {
		return err
	}
	// What ambient declares may need imports of its own.
	header, declared := "", map[string]bool{}
	for {
		added := false
		for _, name := range missing {
			if declared[name] {
				continue
			}
			declared[name], added = true, true
			if path, ok := imports[name]; ok {
				header = fmt.Sprintf("import %s %q\n", name, path) + header
			} else if what, ok := ambient[name]; ok {
				body += "\nvar " + name + " " + what + "\n"
			}
		}
		missing, err = c.typeCheck("package page\n"+header+body, false)
		if !added {
			return err
		}
	}
}

// wrap makes declarations of code. Statements become the body of a function that
// returns an error if they return a value.
func wrap(code string) (string, error) {
	fset := token.NewFileSet()
	if _, err := parser.ParseFile(fset, "", "package page\n"+code, parser.SkipObjectResolution); err == nil {
		return code, nil
	}
	statements := func(result string) string {
		return "func _() " + result + " {\n" + code + "\npanic(0)\n}\n"
	}
	file, err := parser.ParseFile(fset, "", "package page\n"+statements(""), parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	result := ""
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if len(n.Results) > 0 {
				result = "error"
			}
		}
		return true
	})
	return statements(result), nil
}

// typeCheck returns the names that source does not declare, and the first error.
// A variable or an import that is not used is an error in a whole file only: a
// fragment has no room for what comes after.
func (c *checker) typeCheck(source string, whole bool) (undefined []string, first error) {
	file, err := parser.ParseFile(c.fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	config := types.Config{Importer: c.packages, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) && e.Soft && !whole {
			return
		}
		if first == nil {
			first = errors.New(e.Msg)
		}
		if name, ok := strings.CutPrefix(e.Msg, "undefined: "); ok {
			undefined = append(undefined, name)
		}
	}}
	_, _ = config.Check("page", c.fset, []*ast.File{file}, nil) // errors went to Error
	return undefined, first
}

func TestCheckBlock(t *testing.T) {
	t.Parallel()
	c := newChecker(t)
	tests := []struct {
		name, code, mark string
		ok               bool
	}{
		{"statements", "lock, err := locks.TryLock(ctx, sqllock.ID(1))\nif err != nil {\n\treturn err\n}\ndefer lock.Unlock()", "", true},
		{"declarations", "func work(ctx context.Context) error { return nil }\n\nvar n = 1", "", true},
		{"a file", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }", "", true},
		{"a syntax error", "if err := {", "", false},
		{"no such function", "sqllock.OpenAll(ctx, db)", "", false},
		{"a file without its import", "package main\n\nfunc main() { fmt.Println() }", "", false},
		{"code that is marked", "locks.TryLock(ctx)", doesNotCompile, true},
		{"a mark that is not true", "locks.Stats()", doesNotCompile, false},
		{"a mark that is not known", "locks.Stats()", "wrong", false},
		{"a part of a file", "type checker struct {\n\n\t\tfset     *token.FileSet", isIn + "internal/pages/gocode_test.go", true},
		{"not a part of the file", "type checker struct {\nno such line", isIn + "internal/pages/gocode_test.go", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := c.check(block{code: tt.code, mark: tt.mark}); (err == nil) != tt.ok {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestParseMarks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text, mark, problem string
	}{
		{"a Go block", "```go\nx\n```", "", ""},
		{"a mark", "<!-- go: does not compile -->\n```go\nx\n```", doesNotCompile, ""},
		{"a mark of nothing", "<!-- go: does not compile -->\n\n```go\nx\n```", "", "no code block follows the mark on line 1"},
		{"a mark of another language", "<!-- go: does not compile -->\n```sql\nx\n```", "", "the mark above line 2 is not that of a Go block"},
		{"a block in a list", "- item\n\n  ```go\n  x\n  ```", "", "the code block on line 3 is not read here: begin it with three backticks at the margin, and go in lower case"},
		{"a block that does not end", "text\n```go\nx", "", "the code block on line 2 does not end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := parse(tt.text)
			if p.problem != tt.problem {
				t.Fatalf("problem %q; want %q", p.problem, tt.problem)
			}
			if tt.problem == "" && (len(p.blocks) != 1 || p.blocks[0].code != "x" || p.blocks[0].mark != tt.mark) {
				t.Errorf("%+v", p.blocks)
			}
		})
	}
}
