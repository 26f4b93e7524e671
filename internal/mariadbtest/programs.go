package mariadbtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// ErrNoMariaDB reports that a program of MariaDB was not found.
var ErrNoMariaDB error = &pgtest.MissingError{Program: "MariaDB", Advice: "run `make deps`"}

// programDirs are the directories in which packages put MariaDB's programs,
// besides PATH. deps.sh of pgtest searches the same directories (a test
// compares the two lists).
var programDirs = []string{
	"/usr/sbin",
	"/usr/bin",
	"/usr/libexec",
	"/opt/homebrew/opt/mariadb/bin",
	"/usr/local/opt/mariadb/bin",
}

// programs is one installed MariaDB.
type programs struct {
	server, install, client string
	version                 string // as `mariadbd --version` prints it
}

// findPrograms searches for the programs once.
var findPrograms = sync.OnceValues(func() (p programs, err error) {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), programDirs...)
	for name, path := range map[string]*string{"mariadbd": &p.server, "mariadb-install-db": &p.install, "mariadb": &p.client} {
		if *path = programIn(dirs, name); *path == "" {
			return p, ErrNoMariaDB
		}
	}
	version, err := exec.Command(p.server, "--no-defaults", "--version").Output() //nolint:gosec,noctx // one that we have found
	p.version = strings.TrimSpace(string(version))
	return p, err
})

func programIn(dirs []string, name string) string {
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}
