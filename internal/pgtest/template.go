package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// cacheDir returns the directory for templates, which exists and is writable.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "latchkey", "pgtest")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, mayWrite(dir)
}

// cached returns the data directory called name in cache. It has the directory
// initialized first if there is none.
//
// Invariant: a directory with a template's name is complete, since it gets the
// name in one step. The process that makes a template holds the lock file, so
// an interrupted attempt can be told from one under way.
func cached(cache, name string, initialize func(h *home, data string) error) (string, error) {
	template := filepath.Join(cache, name)
	if exists(template) {
		return template, nil
	}
	unlock, err := lockFile(template + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(template) { // someone else made it meanwhile
		return template, nil
	}
	leftovers, _ := filepath.Glob(template + ".tmp*")
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	return template, initTemplate(template, initialize)
}

// initTemplate initializes under the server's account, which may have no access
// to our cache, and moves the result into the cache.
func initTemplate(template string, initialize func(h *home, data string) error) (err error) {
	h, err := newHome(tempDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.remove()) }()
	data := filepath.Join(h.dir, "data")
	if err := initialize(h, data); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(template), filepath.Base(template)+".tmp")
	if err != nil {
		return err
	}
	keepOwner := func(string) error { return nil }
	if err := copyTree(filepath.Join(part, "data"), data, keepOwner, nil); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	err = os.Rename(filepath.Join(part, "data"), template)
	return errors.Join(err, os.RemoveAll(part))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// lockFile waits for an exclusive lock on the file at path. The kernel drops
// the lock if the process dies.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}
