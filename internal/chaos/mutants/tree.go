package mutants

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mirror makes the tree at to equal to the one at from, but for what is hidden or
// left over by builds and tests. Files that are equal already stay untouched, so
// that the go command finds in its cache what it has built of them before. Others
// may be at work at from: a file that vanishes meanwhile was none of the tree's.
func mirror(from, to string) error {
	kept := map[string]bool{to: true}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
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
		there := filepath.Join(to, name)
		switch {
		case name != "." && leftOut(name) && d.IsDir():
			return filepath.SkipDir
		case name != "." && leftOut(name):
			return nil
		case d.IsDir():
			kept[there] = true
			return os.MkdirAll(there, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		kept[there] = true
		return copyFile(path, there)
	})
	if err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case kept[path]:
			return nil
		case d.IsDir():
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return filepath.SkipDir
		}
		return os.Remove(path)
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

// copyFile makes the file to equal to from, if that is there.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return os.WriteFile(to, content, 0o644)
}
