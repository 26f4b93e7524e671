package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// A Process is a worker as its parent sees it.
type Process struct {
	*subprocess.Process
	Config Config

	status atomic.Pointer[Status]
	report atomic.Pointer[Report]
	said   chan struct{} // closed when there is a report, or none will come
}

// Start starts a process. It ends when this one does, however that happens.
// Elements of env are added to its environment.
func Start(config Config, env ...string) (*Process, error) {
	command, err := subprocess.Command(role, config, env...)
	if err != nil {
		return nil, err
	}
	command.Path = cmp.Or(config.Program, command.Path)
	process, err := subprocess.StartCommand(command)
	if err != nil {
		return nil, err
	}
	p := &Process{Process: process, Config: config, said: make(chan struct{})}
	p.status.Store(&Status{})
	go p.listen()
	return p, nil
}

// listen reads what the process says until it ends.
func (p *Process) listen() {
	for lines := json.NewDecoder(p.Stdout); ; {
		var l line
		if lines.Decode(&l) != nil { // it has ended, or was cut short by its end
			break
		}
		if l.Status != nil {
			p.status.Store(l.Status)
		}
		if l.Report != nil && p.report.CompareAndSwap(nil, l.Report) {
			close(p.said)
		}
	}
	_, _ = io.Copy(io.Discard, p.Stdout)
	if p.report.Load() == nil {
		close(p.said)
	}
}

// Status is what the process said last: its zero value before the first time.
func (p *Process) Status() Status { return *p.status.Load() }

// Rest has the process end its callers and keep its session. It may be called
// once.
func (p *Process) Rest() error { return p.send(doRest) }

// Probe has a process that rests take each key once.
func (p *Process) Probe() error { return p.send(doProbe) }

// Drain has the process end its work, by SIGTERM as an orchestrator does, and
// returns its report. If ctx ends first, the process is killed.
func (p *Process) Drain(ctx context.Context) (*Report, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		done <-chan struct{}
		then func() error
	}{{p.said, p.Stdin.Close}, {p.Ended(), p.Wait}} {
		select {
		case <-step.done:
			if err := step.then(); err != nil {
				return nil, fmt.Errorf("worker: process %d: %w", p.Config.Process, err)
			}
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("worker: process %d does not end: %w", p.Config.Process, ctx.Err()), p.Kill())
		}
	}
	report := p.report.Load()
	if report == nil {
		return nil, fmt.Errorf("worker: process %d ended without a report", p.Config.Process)
	}
	return report, nil
}

func (p *Process) send(c command) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = p.Stdin.Write(append(text, '\n'))
	return err
}
