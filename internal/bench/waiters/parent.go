package waiters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/latchkey-go/latchkey/internal/bench/load"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// role is the role of a process that Run starts.
const role = "waiter"

// ready is what a process writes when its connections are open, and begin what
// it is told when all are.
const (
	ready = "ready\n"
	begin = "begin\n"
)

// endGrace is how long a process may take for the end of calls under way.
const endGrace = 30 * time.Second

// Run has so many processes follow config at the same time. When they have
// begun it calls begun, if that is not nil, in a goroutine that it waits for.
// No process outlives Run, nor this process, however that ends.
func Run(ctx context.Context, config Config, processes int, begun func()) (outcome *Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, config.WarmUp+config.Measure+endGrace)
	defer cancel()
	children := make([]*child, 0, processes)
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.end(err != nil))
		}
	}()
	for range processes {
		c, err := start(ctx, config)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if line, err := c.Stdout.ReadString('\n'); line != ready {
			return nil, fmt.Errorf("waiters: a process did not get ready: %w", err)
		}
	}
	for _, c := range children {
		if _, err := io.WriteString(c.Stdin, begin); err != nil {
			return nil, err
		}
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if begun != nil {
			begun()
		}
	}()
	defer func() { <-watched }()
	return gather(children)
}

// A child is a process that was started. It is killed when the context of start
// ends.
type child struct {
	*subprocess.Process

	detach func() bool // from the context
}

func start(ctx context.Context, config Config) (*child, error) {
	p, err := subprocess.Start(role, config)
	if err != nil {
		return nil, err
	}
	return &child{p, context.AfterFunc(ctx, func() { _ = p.Kill() })}, nil
}

// end waits for the end of c, which it brings about if c has failed.
func (c *child) end(failed bool) error {
	defer c.detach()
	if failed {
		_ = c.Kill() // the failure is known
		return nil
	}
	c.Ask()
	return c.Wait()
}

// gather reads the reports of all children.
func gather(children []*child) (*Outcome, error) {
	o := &Outcome{Waits: load.NewHistogram()}
	for _, c := range children {
		var r report
		if err := json.NewDecoder(c.Stdout).Decode(&r); err != nil {
			return nil, fmt.Errorf("waiters: no report of a process: %w", err)
		}
		waits, err := hdrhistogram.Decode(r.Waits)
		if err != nil {
			return nil, err
		}
		o.Waits.Merge(waits)
		o.Grants = append(o.Grants, r.Grants)
		o.Errors += r.Errors
		o.CPU += r.CPU
		o.Elapsed += r.Elapsed / time.Duration(len(children))
		if o.First == "" {
			o.First = r.First
		}
	}
	return o, nil
}
