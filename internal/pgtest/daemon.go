package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// A Daemon is a server with one process and a directory and port of its own.
// Packages like mariadbtest build on it. It runs under an account other than
// root, and does not outlive this process.
//
// Its methods may be called from several goroutines. Those that start, stop or
// signal the server take turns.
type Daemon struct {
	launch Launch
	home   *home
	port   int // the same for its whole life

	turn   sync.Mutex // as Cluster.turn; protects the fields below
	server *process   // nil if it was stopped or killed
	closed bool
}

// A Launch describes how a Daemon is made and started.
type Launch struct {
	// Template names the initial content of the data directory, which is made
	// once per machine. InitArgs returns the program, with its arguments, that
	// makes it in the directory data. Without a Template there is no data.
	Template string
	InitArgs func(data string) []string

	// Files are files to write into its directory, by name.
	Files map[string][]byte

	// PortFiles returns files that depend on the port, by name. They are written
	// before each start. It may be nil.
	PortFiles func(dir string, port int) map[string][]byte

	// Args returns the program and its arguments.
	Args func(dir, data string, port int) []string

	// Ready reports whether the server accepts connections.
	Ready func(dir string, port int) bool

	// OnDisk has the server's directory made outside the file system in memory.
	// MariaDB would take that for persistent memory, where its log is written
	// by several threads at once. SIGKILL then loses a commit now and then.
	OnDisk bool

	// OwnAccount has the server run under our own account, even if that is root.
	// It is for programs in the user's cache directory.
	OwnAccount bool

	// CloseSignal is what Close sends. 0 means SIGKILL.
	CloseSignal syscall.Signal
}

// StartDaemon starts a server. The caller must Close it.
func StartDaemon(launch Launch) (d *Daemon, err error) {
	d = &Daemon{launch: launch}
	parent := tempDir()
	if launch.OnDisk {
		parent = diskDir()
	}
	if d.home, err = newHome(parent); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if launch.OwnAccount {
		d.home.account = nil
	}
	if err := errors.Join(d.makeData(), d.writeFiles(launch.Files)); err != nil {
		return nil, err
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	for range 10 {
		if d.port, err = TakePort(); err != nil {
			return nil, err
		}
		if err = d.startLocked(); !errors.Is(err, errPortTaken) {
			return d, err
		}
		GivePortBack(d.port)
	}
	return d, err
}

func (d *Daemon) makeData() error {
	if d.launch.Template == "" {
		return nil
	}
	initialize := func(h *home, data string) error {
		args := d.launch.InitArgs(data)
		return h.run(startTimeout, args[0], args[1:]...)
	}
	cache, err := cacheDir()
	if err != nil { // a machine without a home directory pays for it each time
		return initialize(d.home, d.data())
	}
	template, err := cached(cache, d.launch.Template, initialize)
	if err != nil {
		return err
	}
	return copyTree(d.data(), template, d.home.own)
}

func (d *Daemon) writeFiles(files map[string][]byte) (err error) {
	for name, content := range files {
		path := filepath.Join(d.home.dir, name)
		err = errors.Join(err, os.WriteFile(path, content, 0o600), d.home.own(path))
	}
	return err
}

// Dir returns the server's directory, which Close removes.
func (d *Daemon) Dir() string { return d.home.dir }

// Port returns the server's port on 127.0.0.1.
func (d *Daemon) Port() int { return d.port }

// Log returns what the program has printed.
func (d *Daemon) Log() string {
	text, err := os.ReadFile(d.home.log())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (d *Daemon) data() string { return filepath.Join(d.home.dir, "data") }

func (d *Daemon) startLocked() error {
	if d.launch.PortFiles != nil {
		if err := d.writeFiles(d.launch.PortFiles(d.home.dir, d.port)); err != nil {
			return err
		}
	}
	from := d.home.logSize()
	args := d.launch.Args(d.home.dir, d.data(), d.port)
	server, err := d.home.start(args[0], args[1:]...)
	if err != nil {
		return err
	}
	d.server = server
	err = poll(startTimeout, filepath.Base(args[0])+" to accept connections", func() (bool, error) {
		if server.exited() {
			return false, errors.New("pgtest: it did not start")
		}
		return d.launch.Ready(d.home.dir, d.port), nil
	})
	if err == nil {
		return nil
	}
	log := d.home.logSince(from)
	err = errors.Join(fmt.Errorf("%s: %w%s", filepath.Base(args[0]), err, d.home.logTail(from)), d.endLocked(syscall.SIGKILL))
	if portTaken(log) || strings.Contains(log, "ort already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// StartAgain starts the server after Kill or Stop, on the same port and data.
func (d *Daemon) StartAgain() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.closed {
		return errClosed
	}
	if d.server != nil && !d.server.exited() {
		return errors.New("pgtest: the server runs already")
	}
	// Another process may have the port for a moment. The port is part of every
	// DSN, so wait for it.
	return poll(startTimeout, "the server's port", func() (bool, error) {
		err := d.startLocked()
		if errors.Is(err, errPortTaken) {
			return false, nil
		}
		return err == nil, err
	})
}

// Stop shuts the server down.
func (d *Daemon) Stop() error { return d.end(syscall.SIGTERM) }

// Kill kills the server with SIGKILL.
func (d *Daemon) Kill() error { return d.end(syscall.SIGKILL) }

// Signal sends sig to the server.
func (d *Daemon) Signal(sig syscall.Signal) error {
	return d.running(func(p *process) error { return p.signal(sig) })
}

// Freeze stops the server with SIGSTOP. To a client it looks like a server
// behind a cut network cable.
func (d *Daemon) Freeze() error {
	return d.running(func(p *process) error { return freeze([]int{p.pid}) })
}

// Thaw ends Freeze.
func (d *Daemon) Thaw() error {
	return d.running(func(p *process) error { return p.signal(sigCont) })
}

func (d *Daemon) running(do func(*process) error) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.server == nil || d.server.exited() {
		return errNotRunning
	}
	return do(d.server)
}

func (d *Daemon) end(sig syscall.Signal) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.endLocked(sig)
}

// endLocked ends the server, frozen or not. It uses SIGKILL if the server takes
// too long.
func (d *Daemon) endLocked(sig syscall.Signal) error {
	if d.server == nil {
		return nil
	}
	err := errors.Join(d.server.signal(sigCont), d.server.signal(sig))
	if err == nil {
		err = d.server.wait(stopTimeout)
	}
	if err != nil {
		err = errors.Join(err, d.server.signal(syscall.SIGKILL), d.server.wait(stopTimeout))
	}
	if d.server.exited() {
		d.server = nil
		err = errors.Join(err, d.home.reaped())
	}
	return err
}

// Close kills the server and removes its files. A second call does nothing.
func (d *Daemon) Close() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	sig := syscall.SIGKILL
	if d.launch.CloseSignal != 0 {
		sig = d.launch.CloseSignal
	}
	err := errors.Join(d.endLocked(sig), d.home.remove())
	GivePortBack(d.port)
	return err
}
