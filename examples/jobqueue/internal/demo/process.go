package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// A process is a worker, seen from outside.
type process struct {
	command  *exec.Cmd
	stdin    io.Closer
	ready    chan struct{}  // closed when it works, or has ended
	ended    chan struct{}  // closed when it has ended
	outcomes map[string]int // that it printed; valid once ended is closed
	err      error          // valid once ended is closed
}

// startProcess starts this program again as a worker. The database's url travels in the
// environment, where other users of the machine do not see it.
func startProcess(f flags, way, url, schema string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{ready: make(chan struct{}), ended: make(chan struct{}), outcomes: map[string]int{}}
	p.command = exec.Command(self, "-worker", way, "-schema", schema, "-workers", strconv.Itoa(f.workers), "-lease", f.lease.String(), "-v="+strconv.FormatBool(f.verbose)) //nolint:gosec,noctx // ourselves
	p.command.Env = append(os.Environ(), "DATABASE_URL="+url)
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
	return p, nil
}

func (p *process) follow(stdout io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(stdout)
	begun := false
	for lines.Scan() {
		if lines.Text() == "ready" && !begun {
			begun = true
			close(p.ready)
			continue
		}
		p.outcomes[lines.Text()]++
	}
	p.err = p.command.Wait()
	if !begun {
		close(p.ready)
	}
}

// kill ends it as a crash does.
func (p *process) kill() error {
	err := p.command.Process.Kill() // SIGKILL
	<-p.ended
	_ = p.stdin.Close()
	return err
}

const stopPatience = 30 * time.Second

// stop asks it to stop, by the end of its input, and waits.
func (p *process) stop() error {
	_ = p.stdin.Close()
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return fmt.Errorf("a worker: %w", p.err)
		}
		return nil
	case <-timer.C:
		return errors.Join(errors.New("a worker did not stop and had to be killed"), p.kill())
	}
}
