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
	const block = module + "/x/x.go:3.5,5.2 1 "
	for name, count := range map[string]string{"TestA": "1", "TestB": "0", "TestC": "1"} {
		if err := os.WriteFile(filepath.Join(coverDir(0), name), []byte("2s\n"+block+count+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[int][]string{2: nil, 3: {"TestA", "TestC"}, 5: {"TestA", "TestC"}, 6: nil} {
		names, took, err := covering(0, "x/x.go", line)
		if !slices.Equal(names, want) || took != time.Duration(len(want))*time.Second || err != nil {
			t.Errorf("line %d: %q in %v, and %v; want %q", line, names, took, err, want)
		}
	}
}
