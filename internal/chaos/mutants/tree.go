package mutants

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// copyTree copies the files of the tree at from, but for what is hidden or left over
// by builds and tests. Others may be at work there: a file that vanishes meanwhile
// was none of the tree's.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case name != "." && leftOut(name) && d.IsDir():
			return filepath.SkipDir
		case name != "." && leftOut(name):
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		return copyFile(path, filepath.Join(to, name))
	})
}

// leftOut reports whether a file or folder is no part of the tree: hidden, or
// left by a build or a test. A plan that rapid found wanting would fail again
// without any bug.
func leftOut(name string) bool {
	base := filepath.Base(name)
	if strings.HasPrefix(base, ".") || name == "bin" {
		return true
	}
	switch filepath.Ext(base) {
	case ".test", ".prof", ".out", ".fail":
		return true
	}
	return false
}

// copyFile copies a file, if it is there.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
