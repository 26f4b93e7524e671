package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

var errNoPgBouncer = errors.New("pgtest: PgBouncer not found: run `make deps`")

// bouncerDirs are the directories in which packages put pgbouncer, besides
// PATH.
var bouncerDirs = []string{"/usr/sbin", "/opt/homebrew/bin", "/usr/local/bin"}

// A Bouncer is a PgBouncer in front of a Cluster. It is closed with the
// Cluster, if not before. Its methods may be called from several goroutines.
type Bouncer struct {
	home *home
	port int

	turn   sync.Mutex // as Cluster.turn; protects the fields below
	server *process   // nil if it was killed
	closed bool
}

// PgBouncer starts a PgBouncer in front of c. The mode is "transaction",
// "session" or "statement". poolSize is the number of its connections to the
// server for each database.
func (c *Cluster) PgBouncer(mode string, poolSize int) (*Bouncer, error) {
	program, err := findBouncer(os.Getenv("PATH"), bouncerDirs)
	if err != nil {
		return nil, err
	}
	b := &Bouncer{}
	if b.home, err = newHome(); err != nil {
		return nil, err
	}
	if err := b.start(program, bouncerSettings(c.port, mode, poolSize)); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, c.adopt(b.Close)
}

// findBouncer returns the first pgbouncer in path or dirs.
func findBouncer(path string, dirs []string) (string, error) {
	for _, dir := range append(filepath.SplitList(path), dirs...) {
		if program, err := exec.LookPath(filepath.Join(dir, "pgbouncer")); err == nil {
			return program, nil
		}
	}
	return "", errNoPgBouncer
}

// bouncerSettings is the content of pgbouncer.ini without the port to listen
// on.
func bouncerSettings(serverPort int, mode string, poolSize int) string {
	return fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=%s
[pgbouncer]
pool_mode = %s
default_pool_size = %d
listen_addr = 127.0.0.1
unix_socket_dir =
auth_type = any
max_client_conn = 2000
; lib/pq sends it at startup
ignore_startup_parameters = extra_float_digits
; after the server was away, ask again soon
server_login_retry = 0.1
`, serverPort, superuser, mode, poolSize)
}

// start starts pgbouncer on a free port.
func (b *Bouncer) start(program, settings string) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	ini := filepath.Join(b.home.dir, "pgbouncer.ini")
	for range 10 {
		port, err := takePort()
		if err != nil {
			return err
		}
		b.port = port
		if err := os.WriteFile(ini, fmt.Appendf(nil, "%slisten_port = %d\n", settings, port), 0o600); err != nil {
			return err
		}
		if err := b.home.own(ini); err != nil {
			return err
		}
		if err := b.listenLocked(program, ini); !errors.Is(err, errPortTaken) {
			return err
		}
		givePortBack(port)
	}
	return errPortTaken
}

// listenLocked starts pgbouncer and waits until it listens.
func (b *Bouncer) listenLocked(program, ini string) (err error) {
	from := b.home.logSize()
	if b.server, err = b.home.start(program, ini); err != nil {
		return err
	}
	// A connection would prove nothing: another process may have taken the
	// port.
	err = poll(startTimeout, "PgBouncer to listen", func() (bool, error) {
		ended := b.server.exited() // first: the log says why it did
		log := b.home.logSince(from)
		if portTaken(log) {
			return false, errPortTaken // it may run on without listening
		}
		if ended {
			return false, errors.New("pgtest: PgBouncer did not start")
		}
		return strings.Contains(log, "process up:"), nil // what it says after it listens
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w%s", err, b.home.logTail(from)), b.killLocked())
	}
	return nil
}

// DSN returns the URL of a database of the cluster, through b. An empty name
// means "postgres".
func (b *Bouncer) DSN(database string) string { return tcpDSN(b.port, database) }

// Kill kills PgBouncer with SIGKILL.
func (b *Bouncer) Kill() error {
	b.turn.Lock()
	defer b.turn.Unlock()
	return b.killLocked()
}

func (b *Bouncer) killLocked() error {
	if b.server == nil {
		return nil
	}
	if err := errors.Join(b.server.signal(syscall.SIGKILL), b.server.wait(stopTimeout)); err != nil {
		return err
	}
	b.server = nil
	return b.home.reaped()
}

// Close stops PgBouncer and removes its files. A second call does nothing.
func (b *Bouncer) Close() error {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	err := errors.Join(b.killLocked(), b.home.remove())
	givePortBack(b.port)
	return err
}
