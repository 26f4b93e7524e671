package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// A process is an instance, seen from outside.
type process struct {
	number  int
	command *exec.Cmd
	stdin   io.Closer
	killed  bool
	ended   chan struct{}
	err     error // valid once ended is closed
}

const (
	startPatience = 30 * time.Second
	stopPatience  = 15 * time.Second
)

// startProcess starts this program again, as instance n, and waits until it works. All that it tells goes to
// events. The database's name travels in the environment, where other users of the machine do not see it.
func startProcess(ctx context.Context, n int, skew time.Duration, d *database, events chan<- event) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{number: n, ended: make(chan struct{})}
	p.command = exec.Command(self, "-instance", strconv.Itoa(n), "-demonstration", d.demo, "-skew", skew.String())
	p.command.Env = append(os.Environ(), "DATABASE_URL="+d.url)
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
	works := make(chan struct{})
	go p.follow(stdout, works, events)
	if err = p.started(ctx, works); err != nil {
		p.tell()
		return nil, errors.Join(err, p.wait())
	}
	return p, nil
}

func (p *process) started(ctx context.Context, works <-chan struct{}) error {
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	select {
	case <-works:
		return nil
	case <-p.ended:
		return errors.New("it did not start")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errors.New("it does not answer")
	}
}

// follow passes on what the instance tells until it ends.
func (p *process) follow(stdout io.Reader, works chan<- struct{}, events chan<- event) {
	defer close(p.ended)
	lines := json.NewDecoder(stdout)
	for {
		var e event
		if lines.Decode(&e) != nil {
			break
		}
		if e.What == ready {
			close(works)
			continue
		}
		events <- e
	}
	_, _ = io.Copy(io.Discard, stdout) // so that Wait sees the end, not a full pipe
	p.err = p.command.Wait()
}

// kill ends the instance at once, whatever it is doing.
func (p *process) kill() error {
	p.killed = true
	return p.command.Process.Kill()
}

// tell asks the instance to stop: by the end of its input.
func (p *process) tell() { _ = p.stdin.Close() }

// wait waits for the end of the instance, not for ever.
func (p *process) wait() error {
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.killed {
			return nil
		}
		return p.err
	case <-timer.C:
	}
	err := p.command.Process.Kill()
	<-p.ended
	return errors.Join(errors.New("an instance had to be killed"), err)
}
