package pgtest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copyTree copies the directories and files of from to the new directory to,
// with their modes, and calls own for each copy. It leaves out the paths below
// from that skip reports, and what is below them. skip is nil for a tree that
// does not change; otherwise a file may disappear meanwhile.
func copyTree(to, from string, own func(path string) error, skip func(path string) bool) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if skip != nil && path != from && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if skip != nil && skip(rel) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(target, path)
		default: // initdb makes nothing else
			err = errors.New("pgtest: neither a file nor a directory: " + path)
		}
		if skip != nil && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, own(target))
	})
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
