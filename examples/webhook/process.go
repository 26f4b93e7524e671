package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// A process is a receiver, seen from outside.
type process struct {
	address string
	command *exec.Cmd
	stdin   io.Closer
	lines   chan line     // what it says; closed when it has ended
	ended   chan struct{} // closed when it has ended and been waited for
}

const (
	startPatience = 30 * time.Second
	stopPatience  = 15 * time.Second
)

// startProcess starts this program again, as a receiver, and waits until it serves.
// Secrets travel in the environment, where other users of the machine do not see
// them.
func startProcess(ctx context.Context, f flags, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{lines: make(chan line, 2), ended: make(chan struct{})}
	p.command = exec.Command(self, "-receiver", "-wait", f.wait.String(), "-work", f.work.String())
	p.command.Env = append(os.Environ(), env...)
	p.command.Stderr = os.Stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go p.follow(stdout)
	return p, p.ready(ctx)
}

// follow reads what the receiver says until it ends: its address, and a crash.
func (p *process) follow(stdout io.Reader) {
	defer close(p.ended)
	defer func() { _ = p.command.Wait() }()
	defer close(p.lines)
	for said := json.NewDecoder(stdout); ; {
		var l line
		if said.Decode(&l) != nil {
			return
		}
		p.lines <- l
	}
}

// ready waits until the receiver serves; one that does not is stopped.
func (p *process) ready(ctx context.Context) (err error) {
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	select {
	case l, ok := <-p.lines:
		if ok {
			p.address = l.Address
			return nil
		}
		err = errors.New("a receiver did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errors.New("a receiver does not say where it serves")
	}
	p.tell()
	return errors.Join(err, p.wait())
}

// tell asks the receiver to stop: by the end of its input.
func (p *process) tell() { _ = p.stdin.Close() }

// wait waits for the end of the receiver, not for ever.
func (p *process) wait() error {
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
	}
	err := p.command.Process.Kill()
	<-p.ended
	return errors.Join(errors.New("a receiver had to be killed"), err)
}
