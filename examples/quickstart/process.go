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

// A process is an instance of the service, seen from outside.
type process struct {
	number         int
	http, grpc     string // addresses
	command        *exec.Cmd
	stdin          io.Closer
	exports        []export // complete once ended is closed
	ended          chan struct{}
	err            error // valid once ended is closed
	readyOrGivenUp chan event
}

// An export is one that an instance says it did.
type export struct {
	instance   int
	user       string
	begin, end time.Time
}

const (
	startPatience = 30 * time.Second
	stopPatience  = 15 * time.Second
)

// startProcess starts this program again, as instance n, and waits until it
// serves. The database's name travels in the environment, where other users of
// the machine do not see it.
func startProcess(ctx context.Context, n int, f flags, databaseURL string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{number: n, ended: make(chan struct{}), readyOrGivenUp: make(chan event, 1)}
	p.command = exec.Command(self, "-instance", strconv.Itoa(n), "-export", f.export.String())
	p.command.Env = append(os.Environ(), "DATABASE_URL="+databaseURL)
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
	timer := time.NewTimer(startPatience)
	defer timer.Stop()
	select {
	case ready, ok := <-p.readyOrGivenUp:
		if ok {
			p.http, p.grpc = ready.HTTP, ready.GRPC
			return p, nil
		}
		err = errors.New("it did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errors.New("it does not answer")
	}
	p.tell()
	return nil, errors.Join(err, p.wait())
}

// follow reads what the instance reports until it ends.
func (p *process) follow(stdout io.Reader) {
	defer close(p.ended)
	lines := json.NewDecoder(stdout)
	var ready event
	if lines.Decode(&ready) == nil {
		p.readyOrGivenUp <- ready
	}
	close(p.readyOrGivenUp)
	for {
		var e event
		if lines.Decode(&e) != nil {
			break
		}
		p.exports = append(p.exports, export{p.number, e.User, e.Begin, e.End})
	}
	_, _ = io.Copy(io.Discard, stdout) // so that Wait sees the end, not a full pipe
	p.err = p.command.Wait()
}

// tell asks the instance to stop: by the end of its input.
func (p *process) tell() { _ = p.stdin.Close() }

// wait waits for the end of the instance, not for ever.
func (p *process) wait() error {
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return p.err
	case <-timer.C:
	}
	err := p.command.Process.Kill()
	<-p.ended
	return errors.Join(errors.New("an instance had to be killed"), err)
}
