package pgtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Cluster is one PostgreSQL server with its data, which Close removes.
//
// Its methods may be called from several goroutines. Those that start, stop or
// signal the server take turns.
type Cluster struct {
	*Daemon
	programs programs
	settings map[string]string
	tls      bool
	ownClock bool          // see WithClock
	disk     *smallDisk    // see WithSmallDisk; nil: none
	stepped  time.Duration // by StepClock, all steps together; protected by turn
}

// Start starts a private cluster. The caller must Close it. It needs
// PostgreSQL's programs, and returns ErrNoPostgres without them.
func Start(opts ...Option) (*Cluster, error) {
	c := &Cluster{settings: quickSettings()}
	for _, opt := range opts {
		opt(c)
	}
	if err := c.start(nil); err != nil {
		return nil, err
	}
	return c, nil
}

// superuser has the same name on every machine.
const superuser = "postgres"

// initOptions are the options of initdb.
var initOptions = []string{
	"--username=" + superuser,
	"--auth=trust",
	"--encoding=UTF8",
	"--no-locale",
	"--no-sync",
}

// start starts c. fill makes the content of its data directory. If it is nil,
// initdb does so once per machine, user and version, since it takes longer than
// the rest of start.
func (c *Cluster) start(fill func(h *home, data string) error) (err error) {
	if c.programs, err = findPrograms(); err != nil {
		return err
	}
	if c.disk != nil && !c.disk.available() {
		return ErrNoMounts
	}
	c.Daemon, err = StartDaemon(Launch{
		Template: templateName(c.programs),
		InitArgs: func(data string) []string {
			return append([]string{c.programs.path("initdb"), "--pgdata=" + data}, initOptions...)
		},
		fill:    fill,
		prepare: c.prepare,
		Files: func(dir string, port int) map[string][]byte {
			return map[string][]byte{"data/postgresql.conf": c.settingsFile(dir, port)}
		},
		Args: func(_, data string, _ int) []string { return []string{c.programs.path("postgres"), "-D", data} },
		// Connect over the socket, which no other server can have: it is in our
		// own directory.
		Ready: func(dir, _ string, port int) bool {
			ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
			defer cancel()
			return execute(ctx, socketDSN(dir, port, ""), "SELECT 1") == nil
		},
		started: func(pid int) error {
			if c.disk == nil {
				return nil
			}
			return c.disk.enter(pid)
		},
		killed:      c.removeRemains,
		StopSignal:  syscall.SIGINT,
		CloseSignal: syscall.SIGQUIT,
	})
	return err
}

// templateName identifies a data directory. Another server version or other
// options have another name.
func templateName(p programs) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{p.version, p.dir}, initOptions...), "\n")))
	return fmt.Sprintf("pg%d-%x", majorIn(p.version), sum[:6])
}

// prepare makes in h what the options of c ask for.
func (c *Cluster) prepare(h *home) error {
	if c.disk != nil {
		c.disk.home, h.disk = h.dir, c.disk // from here on it starts the server
	}
	if c.ownClock {
		if err := makeClock(h); err != nil {
			return err
		}
	}
	if c.tls {
		return writeCertificate(h)
	}
	return nil
}

// Restart stops the server, if it is running, and starts it again on the same
// port and data. With immediate it ends the server as a crash would
// (PostgreSQL's immediate mode), and in fast mode otherwise.
func (c *Cluster) Restart(immediate bool) error {
	mode := syscall.SIGINT
	if immediate {
		mode = syscall.SIGQUIT
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	if err := c.stopLocked(mode); err != nil {
		return err
	}
	return c.startAgainLocked()
}

// FreezeBackend stops one session's server process with SIGSTOP. Its id is what
// pg_backend_pid() returns.
func (c *Cluster) FreezeBackend(pid int) error {
	if err := c.signalBackend(pid, sigStop); err != nil {
		return err
	}
	return freeze([]int{pid})
}

// ThawBackend ends FreezeBackend.
func (c *Cluster) ThawBackend(pid int) error { return c.signalBackend(pid, sigCont) }

// KillBackend kills one session's server process with SIGKILL. PostgreSQL then
// ends all its sessions and recovers.
func (c *Cluster) KillBackend(pid int) error { return c.signalBackend(pid, syscall.SIGKILL) }

// signalBackend sends sig to pid if it is a child of the postmaster.
func (c *Cluster) signalBackend(pid int, sig syscall.Signal) error {
	return c.running(func() error {
		children, err := childrenOf(c.server.pid)
		if err == nil && !slices.Contains(children, pid) {
			err = fmt.Errorf("pgtest: process %d is not a backend of this cluster", pid)
		}
		if err != nil {
			return err
		}
		return kill(pid, sig)
	})
}

// removeRemains removes what a killed server leaves behind:
//
//   - a System V shared memory segment, of which macOS allows only a few;
//   - lock files with its process id. A new server does not start if that id
//     belongs to another process by then.
func (c *Cluster) removeRemains() {
	lock := filepath.Join(c.data(), "postmaster.pid")
	content, err := os.ReadFile(lock)
	if err != nil {
		return // killed before it made one
	}
	if lines := strings.Split(string(content), "\n"); len(lines) > 6 {
		if key := strings.Fields(lines[6]); len(key) == 2 {
			// No ipcrm: the segment stays, 56 bytes until the next boot.
			_ = exec.Command("ipcrm", "-m", key[1]).Run()
		}
	}
	socket := filepath.Join(c.Dir(), fmt.Sprintf(".s.PGSQL.%d", c.port))
	for _, path := range []string{lock, socket, socket + ".lock"} {
		_ = os.Remove(path) // a file that stays makes the next start fail, with its name
	}
}
