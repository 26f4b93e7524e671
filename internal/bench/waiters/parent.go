package waiters

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/latchkey-go/latchkey/internal/bench/load"
)

// env is the environment variable with the config of a process.
const env = "LATCHKEY_BENCH_WAITER"

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
			err = errors.Join(err, c.end(cancel, err != nil))
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
		if line, err := c.out.ReadString('\n'); line != ready {
			return nil, fmt.Errorf("waiters: a process did not get ready: %w", err)
		}
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, begin); err != nil {
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

// A child is a process that was started.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser // it ends when this is closed
	out *bufio.Reader
}

func start(ctx context.Context, config Config) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewReader(out)}, nil
}

// end waits for the end of c, which it brings about if c has failed.
func (c *child) end(kill func(), failed bool) error {
	_ = c.in.Close() // it may have gone
	if failed {
		kill()
		_ = c.cmd.Wait() // the failure is known
		return nil
	}
	return c.cmd.Wait()
}

// gather reads the reports of all children.
func gather(children []*child) (*Outcome, error) {
	o := &Outcome{Waits: load.NewHistogram()}
	for _, c := range children {
		var r report
		if err := json.NewDecoder(c.out).Decode(&r); err != nil {
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
