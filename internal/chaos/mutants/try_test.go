package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// files writes files, by name, into a new folder.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range contents {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A trial tells a bug that was caught from one that survived, and both from a
// trial that failed. The tree stays as it is.
func TestLongCaught(t *testing.T) {
	t.Parallel()
	const test = "package tree\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal(\"not one\")\n\t}\n}\n"
	tree := files(t, map[string]string{
		"go.mod":           "module tree\n\ngo 1.25\n",
		"tree.go":          "package tree\n\nfunc One() int { return 1 }\n",
		"tree_test.go":     test,
		"long/tree.go":     "package tree\n\nimport \"tree\"\n\nfunc One() int { return tree.One() }\n",
		"long/a_test.go":   strings.Replace(test, "TestOne", "TestLongOne", 1),
		"always/a_test.go": strings.Replace(test, "One() != 1", "true", 1),
		"main/a_test.go":   "package main\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(*testing.M) { os.Exit(1) }\n",
	})
	const diff = "--- a/tree.go\n+++ b/tree.go\n@@ -1,3 +1,3 @@\n package tree\n \n-func One() int { return 1 }\n+func One() int { return %s }\n"
	for _, tt := range []struct {
		name, run, returns string
		caught             bool
		fails              string
	}{
		{"caught", ".", "2", true, ""},
		{"caught by a long test", "long", "2", true, ""},
		{"survives", ".", "2 - 1", false, ""},
		{"does not compile", ".", `"one"`, false, "do not compile"},
		{"no such package", "other", "2", false, "no such file"},
		{"fails without the bug, too", "always", "2", false, "TestOne fails without one, too"},
		{"no test runs without the bug", "main", "2", false, "the package fails without one, too"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patches := files(t, map[string]string{"one.patch": "It is wrong.\nrun: " + tt.run + "\n" + strings.Replace(diff, "%s", tt.returns, 1)})
			all, err := load(patches)
			if err != nil {
				t.Fatal(err)
			}
			planted, err := plant(t.Context(), tree, t.TempDir(), all[0])
			if err != nil {
				t.Fatal(err)
			}
			out, err := planted.caught(t.Context(), all[0])
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			if (out != "") != tt.caught || tt.caught && !strings.Contains(out, "not one") {
				t.Errorf("caught by %q, want %t", out, tt.caught)
			}
		})
	}
}

// A bug that eats memory makes its test fail, and not the machine.
func TestLongMemory(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{
		"go.mod":      "module tree\n\ngo 1.25\n",
		"eat_test.go": "package tree\n\nimport \"testing\"\n\nvar eaten []byte\n\nfunc TestEat(*testing.T) { eaten = make([]byte, 5<<30) }\n", // not touched, so it is no real memory
	})
	out, failed, err := tree{root: dir}.test(t.Context(), ".")
	if err != nil || !failed || !strings.Contains(out, "out of memory") {
		t.Errorf("failed: %t, %v, want it out of memory:\n%s", failed, err, out)
	}
}

// A campaign has caught a bug if it says what was violated, and not if it could
// not be run.
func TestSaysViolated(t *testing.T) {
	t.Parallel()
	if says := fmt.Sprint(errors.Join(errors.New("a fault"), check.ErrOverlap)); !saysViolated(says) {
		t.Errorf("%q is a violation", says)
	}
	if says := "chaos: pgtest: initdb: no space left"; saysViolated(says) {
		t.Errorf("%q is no violation", says)
	}
}

// What a program runs is asked to end with it, and can. A line that is enough
// ends it, too.
func TestLongRunEnds(t *testing.T) {
	t.Parallel()
	for name, enough := range map[string]*regexp.Regexp{"context": nil, "enough": regexp.MustCompile("begun")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// "go run" of a shell's script: the go command runs it by -exec.
			dir := files(t, map[string]string{
				"main.go": "package main\n\nfunc main() {}\n",
				"wait.sh": "(trap 'touch asked; exit' TERM; touch begun; echo begun; while :; do sleep 0.1; done) & wait\n",
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := tree{root: dir}.run(ctx, dir, enough, "run", "-exec", "sh wait.sh", "main.go")
				ended <- err
			}()
			await(t, filepath.Join(dir, "begun"))
			if enough == nil {
				cancel()
			}
			if err := <-ended; err == nil {
				t.Error("a program that was broken off has ended well")
			}
			await(t, filepath.Join(dir, "asked"))
		})
	}
}

// await polls for a file.
func await(t *testing.T, name string) {
	t.Helper()
	lockertest.Eventually(t, "there is a file "+filepath.Base(name), func() bool {
		_, err := os.Stat(name)
		return err == nil
	})
}
