package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// Kill kills the server and all its children with SIGKILL, as a power failure
// does. StartAgain starts the server on the data that it had written.
func (d *Daemon) Kill() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.killLocked()
}

// Stop shuts the server down in an orderly way. PostgreSQL does so in its fast
// mode: sessions end and data is kept. A server that takes longer than half a
// minute is killed, and Stop returns an error.
func (d *Daemon) Stop() error {
	d.turn.Lock()
	defer d.turn.Unlock()
	return d.stopLocked(cmp.Or(d.launch.StopSignal, syscall.SIGTERM))
}

// Signal sends sig to the server.
func (d *Daemon) Signal(sig syscall.Signal) error {
	return d.running(func() error { return d.server.signal(sig) })
}

// Freeze stops the server and all its children with SIGSTOP. To a client the
// server looks like one behind a cut network cable.
func (d *Daemon) Freeze() error {
	return d.running(func() error {
		_, err := d.freezeLocked()
		return err
	})
}

// Thaw ends Freeze.
func (d *Daemon) Thaw() error { return d.running(d.thawLocked) }

// running calls do, which may use the server, if the server is running.
func (d *Daemon) running(do func() error) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	if !d.runsLocked() {
		return errNotRunning
	}
	return do()
}

// runsLocked reports whether the server is running. It cleans up after a server
// that has ended without a call of ours.
func (d *Daemon) runsLocked() bool {
	if d.server != nil && d.server.exited() {
		d.forgetLocked()
	}
	return d.server != nil
}

// forgetLocked must be called when the server has ended.
func (d *Daemon) forgetLocked() {
	d.server = nil
	// An error here means that the watchdog is dead: Close still cleans up.
	_ = d.home.reaped()
}

// stopLocked ends the server, frozen or not, with sig. 0 means SIGKILL.
func (d *Daemon) stopLocked(sig syscall.Signal) error {
	if sig == 0 || !d.runsLocked() {
		return d.killLocked()
	}
	err := errors.Join(d.thawLocked(), d.server.signal(sig))
	if err == nil {
		err = d.server.wait(stopTimeout)
	}
	if err != nil {
		return errors.Join(err, d.killLocked())
	}
	d.forgetLocked()
	return nil
}

// killLocked ends the server with SIGKILL.
func (d *Daemon) killLocked() error {
	if !d.runsLocked() {
		return nil
	}
	children, err := d.freezeLocked()
	if err != nil {
		return err
	}
	if err := signalAll(append(children, d.server.pid), syscall.SIGKILL); err != nil {
		return err
	}
	if err := errors.Join(d.server.wait(stopTimeout), waitForEnd(children)); err != nil {
		return err
	}
	d.forgetLocked()
	if d.launch.killed != nil {
		d.launch.killed()
	}
	return nil
}

// freezeLocked freezes the server and its children, which it returns. A stopped
// server starts no more children, so the list is complete.
func (d *Daemon) freezeLocked() (children []int, err error) {
	if err := freeze([]int{d.server.pid}); err != nil {
		return nil, err
	}
	if children, err = childrenOf(d.server.pid); err != nil {
		return nil, err
	}
	return children, freeze(children)
}

func (d *Daemon) thawLocked() error {
	children, err := childrenOf(d.server.pid)
	if err != nil {
		return err
	}
	return signalAll(append(children, d.server.pid), sigCont)
}

// signalAll sends sig to processes, some of which may have ended.
func signalAll(pids []int, sig syscall.Signal) (err error) {
	for _, pid := range pids {
		err = errors.Join(err, ifNot(syscall.ESRCH, kill(pid, sig)))
	}
	return err
}

// freeze sends SIGSTOP and waits until the processes have stopped.
func freeze(pids []int) error {
	if err := signalAll(pids, sigStop); err != nil {
		return err
	}
	return pollTable(10*time.Second, pids, "to freeze", func(p procEntry) bool { return p.stopped() || p.zombie() })
}

// waitForEnd waits until processes that are not our children have ended. A
// zombie has ended too: the process that inherited it may never reap it.
func waitForEnd(pids []int) error { return pollTable(stopTimeout, pids, "to end", procEntry.zombie) }

// pollTable waits until each of pids has ended, or is as is wants it.
func pollTable(d time.Duration, pids []int, what string, is func(procEntry) bool) error {
	return poll(d, fmt.Sprintf("processes %v %s", pids, what), func() (bool, error) {
		table, err := processes()
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(pids, func(pid int) bool {
			p, ok := table[pid]
			return ok && !is(p)
		}), nil
	})
}

// FreezeProcess stops a process of the caller's account with SIGSTOP, and
// returns when the process has stopped.
func FreezeProcess(pid int) error { return freeze([]int{pid}) }

// ThawProcess ends FreezeProcess.
func ThawProcess(pid int) error { return kill(pid, sigCont) }
