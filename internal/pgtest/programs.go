package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// EnvServer is the environment variable that names a running server, as a DSN,
// in which Database and Temporary may create databases.
const EnvServer = "LATCHKEY_TEST_POSTGRES"

// EnvPrograms is the environment variable that names the directory of
// PostgreSQL's programs to use, and no other: for tests on several versions.
// pg_basebackup may be missing there.
const EnvPrograms = "LATCHKEY_TEST_PGBIN"

// oldestMajor is the oldest PostgreSQL that latchkey supports
// (idle_session_timeout came with 14).
const oldestMajor = 14

// ErrNoPostgres says that PostgreSQL 14 or newer was not found, and what to do.
var ErrNoPostgres = errors.New("pgtest: PostgreSQL 14 or newer not found: run `make deps`, or set " +
	EnvServer + " to the DSN of a server in which databases may be created")

// A noProgramsError is ErrNoPostgres for someone who has set EnvServer already, and
// to whom its text would be no help.
type noProgramsError struct{}

func (noProgramsError) Error() string {
	return "pgtest: PostgreSQL 14 or newer not found, and this needs a server of its own, which " + EnvServer +
		" cannot give (it is stopped or killed): run `make deps`"
}

func (noProgramsError) Is(target error) bool { return target == ErrNoPostgres }

// programDirs is where packages put PostgreSQL's programs, PATH aside.
// deps.sh looks in the same places (a test compares the two).
var programDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// programs is one installed PostgreSQL.
type programs struct {
	dir     string // holds postgres and initdb
	version string // as `postgres --version` prints it
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// installed is the PostgreSQL that this process uses; looked for once, unless
// nothing is found.
var installed struct {
	mu    sync.Mutex // protects found
	found *programs
}

func findPrograms() (programs, error) {
	installed.mu.Lock()
	defer installed.mu.Unlock()
	if installed.found == nil {
		p, err := choosePrograms(os.Getenv(EnvPrograms))
		if err != nil {
			return programs{}, err
		}
		installed.found = &p
	}
	return *installed.found, nil
}

// choosePrograms returns the PostgreSQL in chosen, or, if that is empty, searches
// for one.
func choosePrograms(chosen string) (programs, error) {
	if chosen == "" {
		return searchPrograms(os.Getenv("PATH"), programDirs)
	}
	p, err := programsIn(chosen, "postgres", "initdb")
	if err != nil {
		return programs{}, fmt.Errorf("pgtest: %s names no PostgreSQL: %w", EnvPrograms, err)
	}
	return p, nil
}

// searchPrograms returns the first PostgreSQL that is new enough: in path, then
// in each of globs, newest first.
func searchPrograms(path string, globs []string) (programs, error) {
	var dirs []string
	for _, dir := range filepath.SplitList(path) {
		// A link in PATH points at the directory that has the other programs too.
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, glob := range globs {
		matches, _ := filepath.Glob(glob) // the only error is a bad pattern
		before := strings.IndexByte(glob, '*')
		slices.SortFunc(matches, func(a, b string) int { return majorIn(b[before:]) - majorIn(a[before:]) })
		dirs = append(dirs, matches...)
	}
	for _, dir := range dirs {
		if p, err := programsIn(dir, "postgres", "initdb", "pg_basebackup"); err == nil {
			return p, nil
		}
	}
	if os.Getenv(EnvServer) != "" {
		return programs{}, noProgramsError{}
	}
	return programs{}, ErrNoPostgres
}

// programsIn returns the PostgreSQL in dir, if it has what is needed and is new
// enough.
func programsIn(dir string, needed ...string) (programs, error) {
	p := programs{dir: dir}
	for _, name := range needed {
		if _, err := exec.LookPath(p.path(name)); err != nil {
			return programs{}, err
		}
	}
	out, err := exec.Command(p.path("postgres"), "--version").Output()
	if err != nil {
		return programs{}, err
	}
	p.version = strings.TrimSpace(string(out))
	if majorIn(p.version) < oldestMajor {
		return programs{}, fmt.Errorf("pgtest: %s is too old", p.version)
	}
	return p, nil
}

// majorIn is the first number in s, the major version in what `postgres
// --version` prints and in what a glob's star matched; 0 if there is none.
func majorIn(s string) int {
	start := strings.IndexAny(s, "0123456789")
	if start < 0 {
		return 0
	}
	s = s[start:]
	if end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		s = s[:end]
	}
	n, _ := strconv.Atoi(s)
	return n
}
