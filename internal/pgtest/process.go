package pgtest

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// A process is a child of this process. It is reaped by polling instead of by a
// goroutine that waits. A server may therefore run while a test checks that no
// goroutine remains.
//
// Invariant: until exited has returned true the pid belongs to our child
// (perhaps a zombie), so a signal never reaches another process.
type process struct {
	pid    int
	done   bool
	status syscall.WaitStatus // valid once done
}

// startProcess starts argv[0] under attr.
func startProcess(argv []string, attr *os.ProcAttr) (*process, error) {
	p, err := os.StartProcess(argv[0], argv, attr)
	if err != nil {
		return nil, err
	}
	pid := p.Pid
	if err := p.Release(); err != nil {
		return nil, err
	}
	return &process{pid: pid}, nil
}

// exited reports whether the process has ended, and reaps it.
func (p *process) exited() bool {
	if !p.done {
		p.status, p.done = reap(p.pid)
	}
	return p.done
}

// signal sends sig. It does nothing to a process that has ended.
func (p *process) signal(sig syscall.Signal) error {
	if p.exited() {
		return nil
	}
	return kill(p.pid, sig)
}

// wait polls until the process has ended, for d at most.
func (p *process) wait(d time.Duration) error {
	return poll(d, fmt.Sprintf("process %d to end", p.pid), func() (bool, error) { return p.exited(), nil })
}

// poll calls done every few milliseconds until it returns true or an error, for
// d at most. It calls done at least once. Errors name the condition by what.
func poll(d time.Duration, what string, done func() (bool, error)) error {
	deadline := time.Now().Add(d)
	for pause := time.Millisecond; ; pause = min(2*pause, 10*time.Millisecond) {
		ok, err := done()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("pgtest: waited %v for %s without success", d, what)
		}
		time.Sleep(pause)
	}
}
