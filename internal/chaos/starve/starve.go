// Package starve takes processor time away from all other processes, by a
// process that does nothing but count. It is the running program once more,
// whose main calls [Main] first.
package starve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// env is the environment variable with the number of goroutines that count.
const env = "LATCHKEY_CHAOS_STARVE"

// Main does not return in a process that Start has started.
func Main() {
	text, ok := os.LookupEnv(env)
	if !ok {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "starve:", err)
		os.Exit(1)
	}
	runtime.GOMAXPROCS(n)
	for range n {
		go count()
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // end with the parent
	os.Exit(0)
}

func count() {
	for {
		continue
	}
}

// ErrIdle is matched by the error of a stop whose process got next to no
// processor time, so that no other process was starved.
var ErrIdle = errors.New("starve: a process that should take the processor got less than a quarter of one")

// Start starts a process that keeps n processors busy, until stop is called.
func Start(n int) (stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(program) //nolint:gosec // this very program
	command.Env = append(os.Environ(), env+"="+strconv.Itoa(n))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	begin := time.Now()
	return func() error {
		lasted := time.Since(begin)
		if err := errors.Join(stdin.Close(), command.Wait()); err != nil {
			return err
		}
		if used := command.ProcessState.UserTime() + command.ProcessState.SystemTime(); used < lasted/4 {
			return fmt.Errorf("%w: %v in %v", ErrIdle, used, lasted)
		}
		return nil
	}, nil
}
