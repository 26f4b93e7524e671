package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// fakePostgres makes a directory with programs that print version.
func fakePostgres(t *testing.T, dir, version string, names ...string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	for _, name := range names {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
}

// The directory that EnvPrograms names is the only one that is searched.
func TestSearchPrograms(t *testing.T) {
	tests := []struct {
		name    string
		install map[string]string // directory to version
		partial string            // a directory with postgres only
		path    string
		chosen  string
		want    string // "" means none
	}{
		{name: "nothing"},
		{name: "one", install: map[string]string{"lib/15/bin": "15.2"}, want: "lib/15/bin"},
		{name: "newest by number", install: map[string]string{"lib/9/bin": "14.1", "lib/16/bin": "16.1", "lib/17/bin": "17.0"}, want: "lib/17/bin"},
		{name: "newest too old", install: map[string]string{"lib/13/bin": "13.9"}},
		{name: "path first", install: map[string]string{"own": "14.3", "lib/17/bin": "17beta1"}, path: "own", want: "own"},
		{name: "path too old", install: map[string]string{"own": "9.6.24", "lib/17/bin": "17.0"}, path: "own", want: "lib/17/bin"},
		{name: "path incomplete", install: map[string]string{"lib/15/bin": "15.2"}, partial: "own", path: "own", want: "lib/15/bin"},
		{name: "incomplete only", partial: "lib/15/bin"},
		{name: "chosen", install: map[string]string{"own": "15.2", "lib/17/bin": "17.5"}, chosen: "own", want: "own"},
		{name: "chosen too old", install: map[string]string{"own": "13.9", "lib/17/bin": "17.5"}, chosen: "own"},
		{name: "chosen incomplete", install: map[string]string{"lib/17/bin": "17.5"}, partial: "own", chosen: "own"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir()) // macOS: /var is a link
			must(t, err)
			in := func(dir string) string {
				if dir == "" {
					return ""
				}
				return filepath.Join(root, dir)
			}
			for dir, version := range tt.install {
				fakePostgres(t, in(dir), version, "postgres", "initdb")
			}
			if tt.partial != "" {
				fakePostgres(t, in(tt.partial), "15.2", "postgres")
			}
			got, err := searchPrograms(in(tt.chosen), in(tt.path), []string{in("lib/*/bin")})
			switch {
			case tt.want == "" && tt.chosen != "":
				if err == nil || !strings.Contains(err.Error(), EnvPrograms) {
					t.Errorf("got %+v, %v; want an error about %s", got, err, EnvPrograms)
				}
			case tt.want == "":
				if !errors.Is(err, ErrNoPostgres) {
					t.Errorf("got %+v, %v; want ErrNoPostgres", got, err)
				}
			case err != nil || got.dir != in(tt.want):
				t.Errorf("got %+v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

// withoutPrograms hides every PostgreSQL and PgBouncer from this process. The
// test must not run in parallel with others.
func withoutPrograms(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	t.Setenv(EnvPrograms, "")
	dirs, front, found := programDirs, frontDirs, installed.found
	t.Cleanup(func() { programDirs, frontDirs, installed.found = dirs, front, found })
	programDirs, frontDirs, installed.found = nil, nil, nil
}

// ending records how a test ends.
type ending struct {
	testing.TB
	skipped, fatal string
}

func (e *ending) Skip(args ...any)  { e.skipped = fmt.Sprint(args...); runtime.Goexit() }
func (e *ending) Fatal(args ...any) { e.fatal = fmt.Sprint(args...); runtime.Goexit() }

func TestMissingProgramsGiveOneLine(t *testing.T) {
	start := func() error { _, err := Start(); return err }
	cluster := New(t)
	bouncer := func() error { _, err := cluster.PgBouncer("session", 1); return err }
	tests := []struct {
		name   string
		server string // LATCHKEY_TEST_POSTGRES
		call   func() error
		words  []string
	}{
		{"Start", "", start, []string{"make deps", EnvServer}},
		{"Start with a server for tests", "postgres://db.example/", start, []string{"make deps", "a server of its own"}},
		{"PgBouncer", "", bouncer, []string{"make deps", "PgBouncer"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			withoutPrograms(t)
			t.Setenv(EnvServer, tt.server)
			err := tt.call()
			if err == nil {
				t.Fatal("no error")
			}
			if missing := (*MissingError)(nil); !errors.As(err, &missing) {
				t.Errorf("%v is not a MissingError", err)
			}
			for _, missing := range []string{"skip", ""} {
				t.Setenv(EnvMissing, missing)
				test, ended := &ending{TB: t}, make(chan struct{})
				go func() {
					defer close(ended)
					Fatal(test, err)
				}()
				<-ended
				if skipped := strings.HasPrefix(test.skipped, "missing: P"); skipped != (missing == "skip") || (test.fatal == "") != skipped {
					t.Errorf("%s=%s: skipped %q, fatal %q", EnvMissing, missing, test.skipped, test.fatal)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// deps.sh searches the same places, and fetches the versions of PGlite that are
// started here.
func TestDepsScript(t *testing.T) {
	text, err := os.ReadFile("deps.sh")
	must(t, err)
	script := string(text)
	for _, dir := range slices.Concat(programDirs, frontDirs) {
		if !strings.Contains(script, dir) {
			t.Errorf("deps.sh does not look in %s", dir)
		}
	}
	version := func(name string) string {
		_, line, _ := strings.Cut(script, "\n"+name+"=")
		version, _, _ := strings.Cut(line, " ")
		return version
	}
	if got := "pglite-" + version("pglite") + "-" + version("pglite_socket"); got != pgliteDir {
		t.Errorf("deps.sh fetches %s, want %s", got, pgliteDir)
	}
}
