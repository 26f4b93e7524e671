package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Cluster is one PostgreSQL server with its data, which Close removes.
//
// Its methods may be called from several goroutines. Those that start, stop or
// signal the server take turns.
type Cluster struct {
	programs programs
	settings map[string]string
	tls      bool
	ownClock bool       // see WithClock
	disk     *smallDisk // see WithSmallDisk; nil: none
	home     *home
	data     string
	port     int // the same for the cluster's whole life

	// turn is held while the server is started, stopped or signalled. These
	// calls do I/O, but their order is what turn is for. It protects the fields
	// below.
	turn       sync.Mutex
	server     *process // nil if it was stopped or killed
	dependents []func() error
	stepped    time.Duration // by StepClock, all steps together
	closed     bool
}

const (
	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
)

var (
	errClosed     = errors.New("pgtest: the cluster is closed")
	errNotRunning = errors.New("pgtest: the server does not run")
)

// Start starts a private cluster. The caller must Close it. It needs
// PostgreSQL's programs, and returns ErrNoPostgres without them.
func Start(opts ...Option) (*Cluster, error) {
	c := &Cluster{settings: quickSettings()}
	for _, opt := range opts {
		opt(c)
	}
	err := c.create(makeData)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// create makes a home for c, lets makeData fill its data directory and starts
// the server. After an error nothing remains.
func (c *Cluster) create(makeData func(*home, programs) (string, error)) (err error) {
	if c.programs, err = findPrograms(); err != nil {
		return err
	}
	if c.disk != nil && !c.disk.available() {
		return ErrNoMounts
	}
	if c.home, err = newHome(tempDir()); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.data, err = makeData(c.home, c.programs); err != nil {
		return err
	}
	if c.tls {
		if err := c.writeCertificate(); err != nil {
			return err
		}
	}
	if c.ownClock {
		if err := c.makeClock(); err != nil {
			return err
		}
	}
	c.home.disk = c.disk // from here on it starts the server
	c.turn.Lock()
	defer c.turn.Unlock()
	for range 10 {
		if c.port, err = TakePort(); err != nil {
			return err
		}
		if err = c.writeSettings(); err != nil {
			return err
		}
		if err = c.startLocked(); !errors.Is(err, errPortTaken) {
			return err
		}
		GivePortBack(c.port)
	}
	return err
}

// startLocked starts the server and waits until it accepts connections.
// Children of a postmaster that has died may need a moment to end.
func (c *Cluster) startLocked() error {
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := c.launchLocked()
		if !errors.Is(err, errMemoryInUse) || time.Now().After(deadline) {
			return err
		}
	}
}

// errMemoryInUse reports that processes of the previous server still exist.
var errMemoryInUse = errors.New("pgtest: the shared memory is in use")

func (c *Cluster) launchLocked() error {
	from := c.home.logSize()
	server, err := c.home.start(c.programs.path("postgres"), "-D", c.data)
	if err != nil {
		return err
	}
	c.server = server
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// Connect over the socket, which no other server can have: it is in our own
	// directory.
	err = poll(startTimeout, "PostgreSQL to accept connections", func() (bool, error) {
		if server.exited() {
			return false, errors.New("pgtest: PostgreSQL did not start")
		}
		return execute(ctx, c.SocketDSN(""), "SELECT 1") == nil, nil
	})
	if err == nil && c.disk != nil {
		err = c.disk.enter(server.pid, c.home.dir)
	}
	if err == nil {
		return nil
	}
	log := c.home.logSince(from)
	err = errors.Join(fmt.Errorf("%w%s", err, c.home.logTail(from)), c.killLocked())
	switch {
	case portTaken(log):
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	case strings.Contains(log, "pre-existing shared memory block"):
		err = fmt.Errorf("%w: %w", errMemoryInUse, err)
	}
	return err
}

// Close stops the server and removes all its files. It does the same to the
// standbys and poolers made from it. A second call does nothing.
func (c *Cluster) Close() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	var err error
	for _, closeDependent := range c.dependents {
		err = errors.Join(err, closeDependent())
	}
	err = errors.Join(err, c.stopLocked(syscall.SIGQUIT), c.home.remove())
	GivePortBack(c.port)
	return err
}
