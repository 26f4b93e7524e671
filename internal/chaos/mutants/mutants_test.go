package mutants

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var all = flag.Bool("mutants", false, "plant every mutant and see that it is caught: half an hour")

const root = "../../.."

// TestMutants is the gate: what catches bugs must catch these.
func TestMutants(t *testing.T) {
	mutants, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(mutants) < 20 {
		t.Errorf("%d mutants, want 20 at least", len(mutants))
	}
	if !*all {
		t.Skip("-mutants plants them; here they were only read")
	}
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			verdict, err := m.Try(t.Context(), root, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if !verdict.Caught {
				t.Fatalf("survived %s\n%s\n%s", strings.Join(m.Catch, " "), m.Wrong, verdict.Output)
			}
			t.Logf("%s: caught by %s", m.Wrong, strings.Join(m.Catch, " "))
		})
	}
}

// TestMutantsApply sees that no patch has gone stale.
func TestMutantsApply(t *testing.T) {
	t.Parallel()
	mutants, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := copyTree(root, copied); err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		out, err := run(t.Context(), copied, "patch", "-p1", "--dry-run", "--input="+m.patch)
		if err != nil || strings.Contains(out, "fuzz") {
			t.Errorf("%s does not apply cleanly: %v\n%s", m.Name, err, out)
		}
	}
}

// A trial tells a bug that was caught from one that survived, and both from a
// trial that failed.
func TestTry(t *testing.T) {
	t.Parallel()
	tree := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(tree, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module tree\n\ngo 1.25\n")
	write("tree.go", "package tree\n\nfunc One() int { return 1 }\n")
	write("tree_test.go", "package tree\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal()\n\t}\n}\n")
	const diff = "--- a/tree.go\n+++ b/tree.go\n@@ -1,3 +1,3 @@\n package tree\n \n-func One() int { return 1 }\n+func One() int { return %s }\n"
	for _, tt := range []struct {
		name, header, returns string
		caught, fails         bool
	}{
		{"caught", "It is two.\ncaught by: go test ./...\n", "2", true, false},
		{"survives", "It is 1 in another way.\ncaught by: go test ./...\n", "2 - 1", false, false},
		{"does not compile", "It is no number.\ncaught by: go test ./...\n", `"one"`, false, true},
		{"no such program", "It is two.\ncaught by: no-such-program\n", "2", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			patches := t.TempDir()
			text := tt.header + strings.Replace(diff, "%s", tt.returns, 1)
			if err := os.WriteFile(filepath.Join(patches, "one.patch"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			mutants, err := Load(patches)
			if err != nil {
				t.Fatal(err)
			}
			verdict, err := mutants[0].Try(context.Background(), tree, t.TempDir())
			if verdict.Caught != tt.caught || (err != nil) != tt.fails {
				t.Errorf("caught %t, error %v; want %t, %t", verdict.Caught, err, tt.caught, tt.fails)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "caught by: go test\n", "It is wrong.\n"} {
		if _, err := parse(text + "--- a/x\n"); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	m, err := parse("It is\nwrong.\ncaught by: go test ./x\ndir: y\n--- a/x\ncaught by: no\n")
	if err != nil || m.Wrong != "It is wrong." || strings.Join(m.Catch, " ") != "go test ./x" || m.Dir != "y" {
		t.Errorf("%+v, %v", m, err)
	}
}
