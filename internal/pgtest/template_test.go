package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// Several attempts at once, and the remains of an interrupted one, make one
// complete template. It is used again.
func TestCached(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(cache, "name.tmp123", "data"), 0o700))
	var made atomic.Int32
	initialize := func(h *home, data string) error {
		made.Add(1)
		return errors.Join(os.Mkdir(data, 0o700), h.write("data/complete", nil))
	}
	var racers sync.WaitGroup
	for range 4 {
		racers.Go(func() {
			template, err := cached(cache, "name", initialize)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(template, "complete")); err != nil {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	entries, err := os.ReadDir(cache)
	must(t, err)
	if len(entries) != 2 || made.Load() != 1 {
		t.Errorf("made %d times, in the cache: %v; want the template and its lock file", made.Load(), entries)
	}
}

// Without a home directory there is no cache. Start is slower then, and works.
func TestLongStartWithoutCache(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	do(t, New(t).DSN(""), "SELECT 1")
}
