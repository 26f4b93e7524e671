package pgtest

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Freeze stops the postmaster and all its backends with SIGSTOP. To a client
// the server looks like one behind a cut network cable.
func (c *Cluster) Freeze() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if !c.runsLocked() {
		return errNotRunning
	}
	children, err := c.stopPostmasterLocked()
	if err != nil {
		return err
	}
	return freeze(children)
}

// Thaw ends Freeze.
func (c *Cluster) Thaw() error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if !c.runsLocked() {
		return errNotRunning
	}
	return c.thawLocked()
}

func (c *Cluster) thawLocked() error {
	children, err := childrenOf(c.server.pid)
	if err != nil {
		return err
	}
	for _, pid := range append(children, c.server.pid) {
		if err := kill(pid, sigCont); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
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
	c.turn.Lock()
	defer c.turn.Unlock()
	if !c.runsLocked() {
		return errNotRunning
	}
	children, err := childrenOf(c.server.pid)
	if err != nil {
		return err
	}
	if !slices.Contains(children, pid) {
		return fmt.Errorf("pgtest: process %d is not a backend of this cluster", pid)
	}
	return kill(pid, sig)
}

// FreezeProcess stops a process of the caller's account with SIGSTOP, and
// returns when the process has stopped.
func FreezeProcess(pid int) error { return freeze([]int{pid}) }

// ThawProcess ends FreezeProcess.
func ThawProcess(pid int) error { return kill(pid, sigCont) }

// stopPostmasterLocked freezes the postmaster and returns its children.
func (c *Cluster) stopPostmasterLocked() ([]int, error) {
	if err := freeze([]int{c.server.pid}); err != nil {
		return nil, err
	}
	return childrenOf(c.server.pid)
}

// freeze sends SIGSTOP and waits until the process has stopped.
func freeze(pids []int) error {
	for _, pid := range pids {
		if err := kill(pid, sigStop); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return poll(10*time.Second, fmt.Sprintf("processes %v to freeze", pids), func() (bool, error) {
		table, err := processes()
		if err != nil {
			return false, err
		}
		for _, pid := range pids {
			if p, ok := table[pid]; ok && !p.stopped() && !p.zombie() {
				return false, nil
			}
		}
		return true, nil
	})
}
