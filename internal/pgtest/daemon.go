package pgtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Daemon is a server with a directory and a port of its own. Cluster, Bouncer
// and Front are Daemons, and other packages build on it. It runs under an
// account other than root, and does not outlive this process.
//
// Its methods may be called from several goroutines. Those that start, stop or
// signal the server take turns.
type Daemon struct {
	launch Launch
	home   *home
	port   int // the same for its whole life

	// turn is held while the server is started, stopped or signalled. These
	// calls do I/O, but their order is what turn is for. It protects the fields
	// below.
	turn       sync.Mutex
	server     *process // nil if it was stopped or killed
	dependents []func() error
	closed     bool
}

// A Launch describes how a Daemon is made and started.
type Launch struct {
	// Template names the initial content of the data directory, which is made
	// once per machine. InitArgs returns the program, with its arguments, that
	// makes it in the directory data. Without a Template there is no data.
	Template string
	InitArgs func(data string) []string

	// Files returns the files to write into its directory before each start, by
	// name. It may be nil.
	Files func(dir string, port int) map[string][]byte

	// Args returns the program and its arguments.
	Args func(dir, data string, port int) []string

	// Ready reports whether the server accepts connections. log is what the
	// program has printed since it was started.
	Ready func(dir, log string, port int) bool

	// StopSignal is what Stop sends, and CloseSignal what Close sends. 0 means
	// SIGTERM and SIGKILL.
	StopSignal, CloseSignal syscall.Signal

	// OnDisk has the server's directory made outside the file system in memory.
	// MariaDB would take that for persistent memory, where its log is written
	// by several threads at once. SIGKILL then loses a commit now and then.
	OnDisk bool

	// OwnAccount has the server run under our own account, even if that is root.
	// It is for programs in the user's cache directory.
	OwnAccount bool

	// These are for Cluster. Each may be nil.
	fill    func(h *home, data string) error // makes the data instead of a Template
	prepare func(h *home) error              // follows the data
	started func(pid int) error              // follows each start
	killed  func()                           // removes what a killed server leaves behind
}

const (
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
)

var (
	errClosed     = errors.New("pgtest: the server is closed")
	errNotRunning = errors.New("pgtest: the server does not run")

	// errRemains reports that processes of the previous server still exist.
	errRemains = errors.New("pgtest: the shared memory is in use")
)

// StartDaemon starts a server. The caller must Close it. After an error nothing
// remains.
func StartDaemon(launch Launch) (*Daemon, error) {
	d := &Daemon{launch: launch}
	if err := d.create(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Daemon) create() (err error) {
	parent := tempDir()
	if d.launch.OnDisk {
		parent = diskDir()
	}
	if d.home, err = newHome(parent); err != nil {
		return err
	}
	if d.launch.OwnAccount {
		d.home.account = nil
	}
	if err := d.makeData(); err != nil {
		return err
	}
	if d.launch.prepare != nil {
		if err := d.launch.prepare(d.home); err != nil {
			return err
		}
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	for range 10 {
		if d.port, err = TakePort(); err != nil {
			return err
		}
		if err = d.startLocked(); !errors.Is(err, errPortTaken) {
			return err
		}
		GivePortBack(d.port)
	}
	return err
}

func (d *Daemon) makeData() error {
	switch {
	case d.launch.fill != nil:
		return d.launch.fill(d.home, d.data())
	case d.launch.Template == "":
		return nil
	}
	initialize := func(h *home, data string) error {
		args := d.launch.InitArgs(data)
		return h.run(2*time.Minute, args[0], args[1:]...)
	}
	cache, err := cacheDir()
	if err != nil { // a machine without a home directory pays for it each time
		return initialize(d.home, d.data())
	}
	template, err := cached(cache, d.launch.Template, initialize)
	if err != nil {
		return err
	}
	return copyTree(d.data(), template, d.home.own, nil)
}

// Dir returns the server's directory, which Close removes.
func (d *Daemon) Dir() string { return d.home.dir }

// Port returns the server's port on 127.0.0.1.
func (d *Daemon) Port() int { return d.port }

// Log returns what the program has printed.
func (d *Daemon) Log() string { return d.home.logSince(0) }

func (d *Daemon) data() string { return filepath.Join(d.home.dir, "data") }

// writeFiles writes files into the server's directory.
func (d *Daemon) writeFiles(files map[string][]byte) (err error) {
	for name, content := range files {
		err = errors.Join(err, d.home.write(name, content))
	}
	return err
}

// startLocked starts the server and waits until it accepts connections.
// Children of a server that has died may need a moment to end.
func (d *Daemon) startLocked() error {
	if d.launch.Files != nil {
		if err := d.writeFiles(d.launch.Files(d.home.dir, d.port)); err != nil {
			return err
		}
	}
	return poll(startTimeout, "processes of the previous server to end", func() (bool, error) {
		err := d.launchLocked()
		return err == nil, ifNot(errRemains, err)
	})
}

// ifNot returns err, or nil if it is the expected error.
func ifNot(expected, err error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

func (d *Daemon) launchLocked() (err error) {
	from := d.home.logSize()
	args := d.launch.Args(d.home.dir, d.data(), d.port)
	if d.server, err = d.home.start(args[0], args[1:]...); err != nil {
		return err
	}
	name := filepath.Base(args[0])
	err = poll(startTimeout, name+" to accept connections", func() (bool, error) {
		ended := d.server.exited() // first: the log says why it did
		log := d.home.logSince(from)
		switch {
		case strings.Contains(log, "pre-existing shared memory block"):
			return false, errRemains
		case portTaken(log): // it may run on without listening
			return false, errPortTaken
		case ended:
			return false, errors.New("pgtest: it did not start")
		}
		return d.launch.Ready(d.home.dir, log, d.port), nil
	})
	if err == nil && d.launch.started != nil {
		err = d.launch.started(d.server.pid)
	}
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: %w%s", name, err, d.home.logTail(from)), d.killLocked())
}

// StartAgain starts the server after Kill or Stop, on the same port and data.
// It returns an error if the server is running.
func (d *Daemon) StartAgain() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.startAgainLocked()
}

func (d *Daemon) startAgainLocked() error {
	switch {
	case d.closed:
		return errClosed
	case d.runsLocked():
		return errors.New("pgtest: the server runs already")
	}
	// Another process may have the port for a moment. The port is part of every
	// DSN, so wait for it.
	return poll(startTimeout, "the server's port", func() (bool, error) {
		err := d.startLocked()
		return err == nil, ifNot(errPortTaken, err)
	})
}

// adopt makes Close call closeDependent. If d is closed already, adopt calls it
// at once.
func (d *Daemon) adopt(closeDependent func() error) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.closed {
		return errors.Join(errClosed, closeDependent())
	}
	d.dependents = append(d.dependents, closeDependent)
	return nil
}

// Close ends the server and removes its files. It does the same to the standbys,
// poolers and proxies made from it. A second call does nothing.
func (d *Daemon) Close() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var err error
	for _, closeDependent := range d.dependents {
		err = errors.Join(err, closeDependent())
	}
	err = errors.Join(err, d.stopLocked(d.launch.CloseSignal))
	if d.home != nil {
		err = errors.Join(err, d.home.remove())
	}
	GivePortBack(d.port)
	return err
}
