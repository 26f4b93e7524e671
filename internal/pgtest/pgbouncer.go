package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// bouncerDirs are the directories in which packages put pgbouncer, besides
// PATH.
var bouncerDirs = []string{"/usr/sbin", "/opt/homebrew/bin", "/usr/local/bin"}

// A Bouncer is a PgBouncer in front of a Cluster. It is closed with the
// Cluster, if not before. Its methods may be called from several goroutines.
type Bouncer struct {
	home       *home
	port       int
	serverPort int

	turn   sync.Mutex // as Cluster.turn; protects the fields below
	server *process   // nil if it was killed
	closed bool
}

// PgBouncer starts a PgBouncer in front of c. The mode is "transaction",
// "session" or "statement". poolSize is the number of its connections to the
// server for each database. more are further lines of its pgbouncer.ini.
func (c *Cluster) PgBouncer(mode string, poolSize int, more ...string) (*Bouncer, error) {
	program, err := findBouncer(os.Getenv("PATH"), bouncerDirs)
	if err != nil {
		return nil, err
	}
	b := &Bouncer{serverPort: c.port}
	if b.home, err = newHome(tempDir()); err != nil {
		return nil, err
	}
	if err := b.start(program, bouncerSettings(c.port, mode, poolSize, more)); err != nil {
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
func bouncerSettings(serverPort int, mode string, poolSize int, more []string) string {
	return fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%[1]d user=%[2]s
[pgbouncer]
pool_mode = %[3]s
default_pool_size = %[4]d
listen_addr = 127.0.0.1
unix_socket_dir =
auth_type = any
admin_users = %[2]s
max_client_conn = 2000
; lib/pq sends it at startup
ignore_startup_parameters = extra_float_digits
; after the server was away, ask again soon
server_login_retry = 0.1
%[5]s
`, serverPort, superuser, mode, poolSize, strings.Join(more, "\n"))
}

// Admin sends a command to PgBouncer's admin console, such as PAUSE. It returns
// when PgBouncer has carried it out.
func (b *Bouncer) Admin(ctx context.Context, command string) error {
	return execute(ctx, b.DSN("pgbouncer")+"&default_query_exec_mode=simple_protocol", command)
}

// Reload gives PgBouncer other settings, in the form of PgBouncer, while it
// serves its clients.
func (b *Bouncer) Reload(ctx context.Context, mode string, poolSize int, more ...string) error {
	if err := b.writeSettings(bouncerSettings(b.serverPort, mode, poolSize, more)); err != nil {
		return err
	}
	return b.Admin(ctx, "RELOAD")
}

func (b *Bouncer) ini() string { return filepath.Join(b.home.dir, "pgbouncer.ini") }

// writeSettings writes pgbouncer.ini.
func (b *Bouncer) writeSettings(settings string) error {
	if err := os.WriteFile(b.ini(), fmt.Appendf(nil, "%slisten_port = %d\n", settings, b.port), 0o600); err != nil {
		return err
	}
	return b.home.own(b.ini())
}

// start starts pgbouncer on a free port.
func (b *Bouncer) start(program, settings string) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	for range 10 {
		port, err := TakePort()
		if err != nil {
			return err
		}
		b.port = port
		if err := b.writeSettings(settings); err != nil {
			return err
		}
		if err := b.listenLocked(program, b.ini()); !errors.Is(err, errPortTaken) {
			return err
		}
		GivePortBack(port)
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
	GivePortBack(b.port)
	return err
}
