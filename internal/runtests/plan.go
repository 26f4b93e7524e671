package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A plan says which tests to run, and how.
type plan struct {
	long          bool           // those whose names begin with TestLong, instead of all others
	only, without *regexp.Regexp // of folders
	goVersion     string         // "": the installed one
	extra         []string       // more arguments of go test
	out           io.Writer
}

// lanes returns how many modules are tested at a time. While one waits for its
// servers, the other uses the processor. Long tests inject faults into Sessions
// with short bounds, so they have the machine for one module.
func (p plan) lanes() int {
	if p.long {
		return 1
	}
	return 2
}

// hang ends a test binary that hangs. No test asserts that it takes less.
const hang = "20m"

// repeat runs the tests so many times, and reports an error if one run has
// failed.
func (p plan) repeat(ctx context.Context, times int) error {
	all, err := modules(tree(), p.long)
	if err != nil {
		return err
	}
	missing, err := p.findServers(ctx)
	if err != nil {
		return err
	}
	var failed error
	for i := range times {
		if times > 1 {
			fmt.Fprintf(p.out, "== run %d of %d\n", i+1, times)
		}
		if err := p.runOnce(ctx, all, missing); err != nil && !errors.Is(failed, errFailed) {
			failed = err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return failed
}

// findServers looks for the programs that the tests need, and installs them if
// it can. It reports whether some are missing. The scripts say which.
func (p plan) findServers(ctx context.Context) (missing bool, err error) {
	scripts := []string{"internal/pgtest/deps.sh", "internal/pages/languages/deps.sh"}
	if p.long {
		scripts = append(scripts, "internal/browser/deps.sh")
	}
	for _, script := range scripts {
		c := exec.CommandContext(ctx, "sh", script)
		c.Stdout, c.Stderr = p.out, p.out
		err := c.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
			missing = true
		} else if err != nil {
			return missing, fmt.Errorf("%s: %w", script, err)
		}
	}
	return missing, nil
}

// runOnce runs the tests of all modules.
func (p plan) runOnce(ctx context.Context, all []module, missing bool) error {
	began := time.Now()
	r := newReport(p.out, p.extra)
	queue := make(chan module, len(all))
	for _, m := range all {
		if m = m.choose(p.only, p.without); len(m.packages) > 0 && p.allows(m) {
			queue <- m
		}
	}
	if len(queue) == 0 {
		return errors.New("no package with such tests is in a folder that matches")
	}
	close(queue)
	var lane sync.WaitGroup
	for range p.lanes() {
		lane.Go(func() {
			for m := range queue {
				if ctx.Err() == nil {
					r.module(m, p.command(ctx, m, missing))
				}
			}
		})
	}
	lane.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.finish(time.Since(began))
}

// allows reports whether the version of Go that is asked for is new enough for
// m.
func (p plan) allows(m module) bool {
	return p.goVersion == "" || m.goVersion == p.goVersion
}

// command returns the command that runs the tests of m.
func (p plan) command(ctx context.Context, m module, missing bool) *exec.Cmd {
	parallel := max(2, runtime.NumCPU()/p.lanes())
	args := []string{
		"test", "-json", "-vet=off", "-ldflags=-w", "-count=1", "-timeout", hang, "-p", strconv.Itoa(parallel),
		p.selects(),
	}
	args = append(args, p.extra...)
	c := exec.CommandContext(ctx, goProgram(), append(args, m.packages...)...)
	c.Dir = m.dir
	c.Env = os.Environ()
	if missing {
		c.Env = append(c.Env, "LATCHKEY_TEST_MISSING=skip")
	}
	if p.goVersion != "" {
		c.Env = append(c.Env, "GOTOOLCHAIN=go"+p.goVersion)
	}
	inGroup(c)
	return c
}

// selects returns the flag that selects tests by their names.
func (p plan) selects() string {
	if p.long {
		return "-run=^TestLong"
	}
	return "-skip=^TestLong"
}

// goProgram is the go command that the Makefile uses.
func goProgram() string {
	if name := strings.TrimSpace(os.Getenv("GO")); name != "" {
		return name
	}
	return "go"
}
