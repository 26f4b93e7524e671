package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Kill kills the postmaster and all its children with SIGKILL, as a power
// failure does. StartAgain starts the server on the data that it had written.
func (c *Cluster) Kill() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.killLocked()
}

// Stop shuts the server down in PostgreSQL's fast mode: sessions end and data
// is kept. A server that takes longer than half a minute is killed, and Stop
// returns an error.
func (c *Cluster) Stop() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.stopLocked(syscall.SIGINT)
}

// StartAgain starts the server after Kill or Stop, on the same port and data.
// It returns an error if the server is running.
func (c *Cluster) StartAgain() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	return c.startAgainLocked()
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

func (c *Cluster) startAgainLocked() error {
	if c.closed {
		return errClosed
	}
	if c.runsLocked() {
		return errors.New("pgtest: the server runs already")
	}
	// Another process may have the port for a moment. The port is part of every
	// DSN, so wait for it.
	return poll(startTimeout, "the server's port", func() (bool, error) {
		err := c.startLocked()
		if errors.Is(err, errPortTaken) {
			return false, nil
		}
		return err == nil, err
	})
}

// runsLocked reports whether the server is running. It cleans up after a server
// that has ended without a call of ours.
func (c *Cluster) runsLocked() bool {
	if c.server != nil && c.server.exited() {
		c.forgetLocked()
	}
	return c.server != nil
}

// forgetLocked must be called when the server has ended.
func (c *Cluster) forgetLocked() {
	c.server = nil
	// An error here means that the watchdog is dead: Close still cleans up.
	_ = c.home.reaped()
}

// stopLocked ends the server, frozen or not, by sending mode to the postmaster.
func (c *Cluster) stopLocked(mode syscall.Signal) error {
	if !c.runsLocked() {
		return nil
	}
	err := c.thawLocked()
	err = errors.Join(err, c.server.signal(mode))
	if err == nil {
		err = c.server.wait(stopTimeout)
	}
	if err != nil {
		return errors.Join(err, c.killLocked())
	}
	c.forgetLocked()
	return nil
}

// killLocked ends the server with SIGKILL.
func (c *Cluster) killLocked() error {
	if !c.runsLocked() {
		return nil
	}
	// A stopped postmaster starts no more children, so the list is complete.
	children, err := c.stopPostmasterLocked()
	if err != nil {
		return err
	}
	for _, pid := range append(children, c.server.pid) {
		if err := kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	if err := c.server.wait(stopTimeout); err != nil {
		return err
	}
	if err := waitForEnd(children); err != nil {
		return err
	}
	c.forgetLocked()
	return c.removeRemains()
}

// waitForEnd waits until processes that are not our children have ended.
func waitForEnd(pids []int) error {
	return poll(stopTimeout, fmt.Sprintf("processes %v to end", pids), func() (bool, error) {
		table, err := processes()
		if err != nil {
			return false, err
		}
		for _, pid := range pids {
			// A zombie has ended too: the process that inherited it may never
			// reap it.
			if p, ok := table[pid]; ok && !p.zombie() {
				return false, nil
			}
		}
		return true, nil
	})
}

// removeRemains removes what a killed server leaves behind:
//
//   - a System V shared memory segment, of which macOS allows only a few;
//   - lock files with its process id. A new server does not start if that id
//     belongs to another process by then.
func (c *Cluster) removeRemains() error {
	lock := filepath.Join(c.data, "postmaster.pid")
	content, err := os.ReadFile(lock)
	if err != nil {
		return nil // killed before it made one
	}
	if lines := strings.Split(string(content), "\n"); len(lines) > 6 {
		if key := strings.Fields(lines[6]); len(key) == 2 {
			// No ipcrm: the segment stays, 56 bytes until the next boot.
			_ = exec.Command("ipcrm", "-m", key[1]).Run()
		}
	}
	socket := filepath.Join(c.home.dir, fmt.Sprintf(".s.PGSQL.%d", c.port))
	for _, path := range []string{lock, socket, socket + ".lock"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
