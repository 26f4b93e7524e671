package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The mutant is found although the tool formats the file anew.
func TestChangedLine(t *testing.T) {
	original := t.TempDir()
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{
		filepath.Join(original, "x.go"): "package x\n\nfunc less(a, b int) bool {\n\treturn a < b // a  comment\n}\n",
		"x.go":                          "package x\n\nfunc less(a, b int) bool {\n  return a <= b\n}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if name, line, err := changedLine(original); name != "x.go" || line != 4 || err != nil {
		t.Errorf("changedLine: %s:%d and %v, want x.go:4", name, line, err)
	}
	if name, line, err := changedLine("."); err == nil {
		t.Errorf("without a mutant: %s:%d", name, line)
	}
}

// A test is chosen if it runs a block that the line is in.
func TestCovering(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := errors.Join(os.Mkdir(coverDir(0), 0o700), os.WriteFile(ratioFile(0), []byte("0.5"), 0o600)); err != nil {
		t.Fatal(err)
	}
	const some, another = module + "/x/x.go:3.5,5.2 1 ", module + "/x/x.go:7.5,7.9 1 "
	for name, covers := range map[string]string{"TestA": some + "1", "TestB": some + "0", "TestC": some + "1", "TestD": some + "1", "TestE": another + "1"} {
		if err := os.WriteFile(filepath.Join(coverDir(0), name), []byte("2s\n"+covers+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	three := []string{"TestA", "TestC", "TestD"}
	for line, want := range map[int]struct {
		names []string
		took  time.Duration
	}{2: {}, 3: {three, 3 * time.Second}, 5: {three, 3 * time.Second}, 6: {}, 7: {[]string{"TestE"}, 2 * time.Second}} {
		names, took, err := covering(0, "x/x.go", line)
		if !slices.Equal(names, want.names) || took != want.took || err != nil {
			t.Errorf("line %d: %q in %v, and %v; want %v", line, names, took, err, want)
		}
	}
}
