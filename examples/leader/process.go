package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// A process is a candidate, seen from outside.
type process struct {
	number  int
	address string // of its health
	command *exec.Cmd
	stdin   io.Closer
	ready   chan string
	ended   chan struct{} // closed when it has ended, and all that it told is in the chronicle
}

const patience = 15 * time.Second

var errSilent = errors.New("a candidate does not answer")

// startProcess starts this program again, as a candidate, and waits until it campaigns. The
// database's name travels in the environment, where other users of the machine do not see it.
func startProcess(ctx context.Context, number int, url string, c *chronicle) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{number: number, ready: make(chan string, 1), ended: make(chan struct{})}
	p.command = exec.Command(self, "-candidate", strconv.Itoa(number)) //nolint:noctx // it is told to end, and waited for
	p.command.Env = append(os.Environ(), "DATABASE_URL="+url)
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(p.command.SysProcAttr)
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
	go p.follow(stdout, c)
	select {
	case p.address = <-p.ready:
		return p, nil
	case <-p.ended:
		err = errors.New("a candidate did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(patience):
		err = errSilent
	}
	p.kill()
	return nil, err
}

// follow reads what the candidate reports until it ends.
func (p *process) follow(stdout io.Reader, c *chronicle) {
	defer close(p.ended)
	lines := json.NewDecoder(stdout)
	for {
		var r report
		if lines.Decode(&r) != nil {
			break
		}
		if r.Address != "" {
			p.ready <- r.Address
		} else {
			c.add(r)
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // so that Wait sees the end, not a full pipe
	_ = p.command.Wait()
}

// tell asks the candidate to exit: by the end of its input.
func (p *process) tell() { _ = p.stdin.Close() }

// kill ends it for certain, frozen or not.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// exit has it exit, or kills it if it takes too long.
func (p *process) exit() error {
	p.tell()
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
		p.kill()
		return errors.New("a candidate had to be killed")
	}
}

// health asks its health endpoint.
func (p *process) health(ctx context.Context) (h health, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+"/health", nil)
	if err != nil {
		return h, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return h, errSilent // the error's text names an address
	}
	defer func() { _ = response.Body.Close() }()
	return h, json.NewDecoder(response.Body).Decode(&h)
}
