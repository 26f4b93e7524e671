package mutants

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMirror(t *testing.T) {
	t.Parallel()
	from := files(t, map[string]string{
		"kept.go": "kept", "sub/kept.go": "kept", "sub/bin/kept.go": "kept", "testdata/kept.json": "kept",
		"bin/built": "", ".git/config": "", "sub.test": "", "cpu.prof": "", "coverage.out": "", "testdata/rapid/TestX/plan.fail": "",
	})
	// What vanished between the listing of its folder and the reading looks like this.
	if err := copyFile(filepath.Join(from, "vanished"), filepath.Join(from, "copy")); err != nil {
		t.Errorf("a file that vanished: %v", err)
	}
	to := files(t, map[string]string{"kept.go": "planted", "sub/left.go": "", "left/over.go": "", "testdata/rapid/TestX/plan.fail": ""})
	if err := mirror(from, to); err != nil {
		t.Fatal(err)
	}
	var copied []string
	for _, pattern := range []string{"*", "*/*", "*/*/*", "*/*/*/*"} {
		found, err := filepath.Glob(filepath.Join(to, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if content, err := os.ReadFile(path); err == nil {
				copied = append(copied, strings.TrimPrefix(path, to+"/")+": "+string(content))
			}
		}
	}
	slices.Sort(copied)
	if want := []string{"kept.go: kept", "sub/bin/kept.go: kept", "sub/kept.go: kept", "testdata/kept.json: kept"}; !slices.Equal(copied, want) {
		t.Errorf("copied %q, want %q", copied, want)
	}
	if err := mirror(filepath.Join(from, "nowhere"), t.TempDir()); err == nil {
		t.Error("a tree that is not there was copied")
	}
}
