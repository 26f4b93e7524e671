package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// EnvServer is the environment variable that names a running server, as a DSN.
// Database and Temporary create their databases there.
const EnvServer = "LATCHKEY_TEST_POSTGRES"

// EnvPrograms is the environment variable that names the directory with
// PostgreSQL's programs. No other directory is searched then. It is for tests
// on several versions.
const EnvPrograms = "LATCHKEY_TEST_PGBIN"

// oldestMajor is the oldest PostgreSQL that latchkey supports
// (idle_session_timeout came with 14).
const oldestMajor = 14

// programDirs are the directories in which packages put PostgreSQL's programs,
// besides PATH. deps.sh searches the same directories (a test compares the two
// lists).
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

// installed is the PostgreSQL that this process uses. A successful search is
// not repeated.
var installed struct {
	mu    sync.Mutex // protects found
	found *programs
}

func findPrograms() (programs, error) {
	installed.mu.Lock()
	defer installed.mu.Unlock()
	if installed.found == nil {
		p, err := searchPrograms(os.Getenv(EnvPrograms), os.Getenv("PATH"), programDirs)
		if err != nil {
			return programs{}, err
		}
		installed.found = &p
	}
	return *installed.found, nil
}

// searchPrograms returns the PostgreSQL in the directory chosen. If that is empty,
// it returns the first one that is new enough. It searches path, then each of
// globs with the newest version first.
func searchPrograms(chosen, path string, globs []string) (programs, error) {
	if chosen != "" {
		p, err := programsIn(chosen)
		if err != nil {
			return programs{}, fmt.Errorf("pgtest: %s names no PostgreSQL: %w", EnvPrograms, err)
		}
		return p, nil
	}
	var dirs []string
	for _, dir := range filepath.SplitList(path) {
		// A link in PATH leads to the directory that has the other programs
		// too.
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
		if p, err := programsIn(dir); err == nil {
			return p, nil
		}
	}
	if os.Getenv(EnvServer) != "" {
		return programs{}, errNoPrograms
	}
	return programs{}, ErrNoPostgres
}

// programsIn returns the PostgreSQL in dir, if dir has the programs and they
// are new enough.
func programsIn(dir string) (programs, error) {
	p := programs{dir: dir}
	for _, name := range []string{"postgres", "initdb"} {
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

// majorIn returns the first number in s, or 0 if there is none. In the output
// of `postgres --version`, and in what a glob's star matched, that is the major
// version.
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
