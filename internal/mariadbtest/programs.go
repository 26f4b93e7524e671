package mariadbtest

import (
	"os/exec"
	"strings"
	"sync"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// ErrNoMariaDB reports that a program of MariaDB was not found.
var ErrNoMariaDB error = &pgtest.MissingError{Program: "MariaDB", Advice: "run `make deps`"}

// programDirs are the directories in which packages put MariaDB's programs,
// besides those of pgtest.Find. deps.sh of pgtest searches the same directories
// (a test compares the two lists).
var programDirs = []string{
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
	for name, path := range map[string]*string{"mariadbd": &p.server, "mariadb-install-db": &p.install, "mariadb": &p.client} {
		if *path = pgtest.Find(name, programDirs...); *path == "" {
			return p, ErrNoMariaDB
		}
	}
	version, err := exec.Command(p.server, "--no-defaults", "--version").Output() //nolint:gosec,noctx // one that we have found
	p.version = strings.TrimSpace(string(version))
	return p, err
})
