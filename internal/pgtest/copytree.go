package pgtest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copyTree copies the directories and files of from to the new directory to,
// with their modes, and calls own for each copy.
func copyTree(to, from string, own func(path string) error) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, info.Mode().Perm())
		case entry.Type().IsRegular():
			err = copyFile(target, path, info.Mode().Perm())
		default: // initdb makes nothing else
			err = errors.New("pgtest: neither a file nor a directory: " + path)
		}
		if err != nil {
			return err
		}
		return own(target)
	})
}

func copyFile(to, from string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
