//go:build linux

// Package sandbox runs this program once more, in process, mount, network and
// IPC namespaces of its own. Nothing that happens there shows outside, and
// nothing is left of it. The kernel ends every process of the namespace with its
// first one, and then removes the mounts, networks and shared memory. A kill at
// any moment has the same effect.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Dir is a directory in memory that only the sandbox sees. Any account may pass
// through it.
const Dir = "/run/latchkey"

// first is the first process of a sandbox. It gets an empty /run and an empty
// /dev/shm, in memory: a killed PostgreSQL leaves files in the latter. Then it
// waits for the program, and reaps every other process.
const first = `mount -t tmpfs -o mode=755 none /run && mount -t tmpfs -o mode=1777 none /dev/shm && mkdir -m 755 ` + Dir + ` && "$0"; exit $?`

// variable is the environment variable that has the orders.
const variable = "LATCHKEY_SANDBOX"

// Main does not return in a process that Run has started. There it calls do
// with the orders of Run. Call it first in main.
func Main[T any](do func(orders T) error) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	var orders T
	err := errors.Join(json.Unmarshal([]byte(text), &orders), os.Unsetenv(variable))
	if err == nil {
		err = do(orders)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Run runs do of Main in a new sandbox, and waits for its end. If ctx ends, or
// this process does, everything in the sandbox is killed. Run needs root.
func Run(ctx context.Context, orders any, stdout, stderr io.Writer) error {
	text, err := json.Marshal(orders)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc", "sh", "-c", first, program)
	c.Env = append(os.Environ(), variable+"="+string(text))
	c.Stdout, c.Stderr = stdout, stderr
	c.WaitDelay = 5 * time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig acts when this thread ends, and another goroutine could end it
		defer runtime.UnlockOSThread()
		ended <- c.Run()
	}()
	err = <-ended
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
