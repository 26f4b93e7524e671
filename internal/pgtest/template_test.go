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

func TestTemplateName(t *testing.T) {
	t.Parallel()
	a := templateName(programs{dir: "/a", version: "postgres (PostgreSQL) 15.1"})
	for _, other := range []programs{
		{dir: "/a", version: "postgres (PostgreSQL) 15.2"},
		{dir: "/b", version: "postgres (PostgreSQL) 15.1"},
	} {
		if templateName(other) == a {
			t.Errorf("%+v has the template of another", other)
		}
	}
}

// Without a home directory there is no cache. Start is slower then, and works.
func TestLongStartWithoutCache(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	do(t, New(t).DSN(""), "SELECT 1")
}

func TestCopyTree(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	must(t, os.MkdirAll(filepath.Join(from, "a", "b"), 0o700))
	must(t, os.WriteFile(filepath.Join(from, "a", "b", "c"), []byte("text"), 0o600))
	owned := 0
	must(t, copyTree(to, from, func(string) error { owned++; return nil }))
	got, err := os.ReadFile(filepath.Join(to, "a", "b", "c"))
	must(t, err)
	if string(got) != "text" || owned != 4 {
		t.Errorf("copied %q, owned %d; want text, 4", got, owned)
	}
	info, err := os.Stat(filepath.Join(to, "a", "b", "c"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}

	must(t, os.Symlink("elsewhere", filepath.Join(from, "link")))
	if copyTree(to+"2", from, func(string) error { return nil }) == nil {
		t.Error("a link is copied: no error")
	}
}
