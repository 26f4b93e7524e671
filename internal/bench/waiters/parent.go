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

// role is that of a process that waits.
const role = "waiters"

// A process prints ready when its connections are open. Its parent writes begin
// when all processes are ready.
const (
	ready = "ready"
	begin = "begin\n"
)

// endGrace is how long a process may take for the end of calls under way.
const endGrace = 30 * time.Second

// Run runs config in several processes at the same time. When they have begun it
// calls begun, if that is not nil, in a goroutine that it waits for. No process
// outlives Run, nor this process, however that ends.
func Run(ctx context.Context, config Config, processes int, begun func()) (outcome *Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, config.WarmUp+config.Measure+endGrace)
	defer cancel()
	children := make([]*subprocess.Process, 0, processes)
	defer func() {
		for _, c := range children {
			err = errors.Join(err, end(c, err != nil))
		}
	}()
	for range processes {
		c, err := subprocess.Start(role, config)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
		defer context.AfterFunc(ctx, func() { _ = c.Kill() })()
	}
	for _, c := range children {
		if line, err := c.ReadLine(); line != ready {
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

// end waits for the end of c, or kills it if the run has failed.
func end(c *subprocess.Process, failed bool) error {
	if failed {
		return c.Kill()
	}
	return c.Stop(endGrace)
}

// gather reads the reports of all children.
func gather(children []*subprocess.Process) (*Outcome, error) {
	o := &Outcome{Waits: load.NewHistogram()}
	var holds [][]hold
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
		holds = append(holds, r.Holds)
	}
	o.HandOvers = handOvers(holds)
	return o, nil
}
