package mutants

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// try is what comes of one mutant, a patch of this text.
func try(t *testing.T, tree, text string) (Result, error) {
	t.Helper()
	mutants, err := Load(files(t, map[string]string{"one.patch": text}))
	if err != nil {
		t.Fatal(err)
	}
	return NewBench(tree, t.TempDir()).Try(t.Context(), mutants[0])
}

// A trial tells a bug that was caught from one that survived, and both from a
// trial that failed.
func TestTry(t *testing.T) {
	t.Parallel()
	tree := files(t, map[string]string{
		"go.mod":       "module tree\n\ngo 1.25\n",
		"tree.go":      "package tree\n\nfunc One() int { return 1 }\n",
		"tree_test.go": "package tree\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	const diff = "--- a/tree.go\n+++ b/tree.go\n@@ -1,3 +1,3 @@\n package tree\n \n-func One() int { return 1 }\n+func One() int { return %s }\n"
	for _, tt := range []struct {
		name, header, returns string
		caught, fails         bool
	}{
		{"caught", "It is two.\ncaught by: go test ./...\n", "2", true, false},
		{"survives", "It is 1 in another way.\ncaught by: go test ./...\n", "2 - 1", false, false},
		{"does not compile", "It is no number.\ncaught by: go test ./...\n", `"one"`, false, true},
		{"no such program", "It is two.\ncaught by: no-such-program\n", "2", false, true},
		{"no such test", "It is two.\ncaught by: go test -run TestTwo ./...\n", "2", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			result, err := try(t, tree, tt.header+strings.Replace(diff, "%s", tt.returns, 1))
			if result.Test.Caught != tt.caught || (err != nil) != tt.fails {
				t.Errorf("caught %t, error %v; want %t, %t", result.Test.Caught, err, tt.caught, tt.fails)
			}
		})
	}
}

// A campaign has caught a bug if it says what was violated, and not if it could
// not be run.
func TestTryCampaign(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, says, exit string
		caught           bool
	}{
		{"an overlap", "check: two locks of a key were valid at once: 1 times", "1", true},
		{"the first of several", "chaos: check: a lost lock was valid again: 1 times", "1", true},
		{"told late", "campaign: holders were told too late: row 7", "1", true},
		{"a row", "2  frozen longer than the lease  1  3  VIOLATED", "1", true},
		{"a guarantee of a row", "chaos: row 2, frozen: a guarantee was violated: process 3 has not noticed", "1", true},
		{"a process that panicked", "chaos: fleet: every process to serve: a process has ended by itself: process 2", "1", true},
		{"a row that was broken off", "22  PgBouncer, session mode, killed  1  0  broken off", "1", false},
		{"all is well", "check: two locks of a key were valid at once", "0", false},
		{"no server", "chaos: pgtest: initdb: no space left", "1", false},
		{"no time to decide", "check: the time was not enough to decide: 1 keys", "1", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tree := files(t, map[string]string{
				"go.mod":                   "module tree\n\ngo 1.25\n",
				"tree.go":                  "package tree\n",
				campaignDir + "/says":      tt.says + "\n",
				campaignDir + "/play.sh":   "cat says\n[ \"$1\" = -out ] && [ -n \"$2\" ] || exit 0\nexit " + tt.exit + "\n",
				campaignDir + "/spare.out": "",
			})
			result, err := try(t, tree, "It is wrong.\ncaught by: true\ncampaign: sh play.sh\n"+
				"--- a/tree.go\n+++ b/tree.go\n@@ -1 +1,2 @@\n package tree\n+// wrong\n")
			if err != nil {
				t.Fatal(err)
			}
			if result.Campaign.Caught != tt.caught || result.Test.Caught || !strings.Contains(result.Campaign.Output, tt.says) {
				t.Errorf("the result is %+v, want a campaign that caught: %t", result, tt.caught)
			}
		})
	}
}

// A command that does not end in time is neither a catch nor a success.
func TestBound(t *testing.T) {
	t.Parallel()
	_, err := Command{Words: []string{"sleep", "30"}}.notices(t.Context(), t.TempDir(), 10*time.Millisecond)
	if !errors.Is(err, errLate) {
		t.Errorf("got %v, want that it has not ended", err)
	}
}
