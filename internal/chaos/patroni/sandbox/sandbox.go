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

// The environment variables by which a process knows its part.
const (
	partVariable   = "LATCHKEY_SANDBOX"
	ordersVariable = "LATCHKEY_SANDBOX_ORDERS"

	partInit   = "init"   // the first process: it only reaps
	partInside = "inside" // the one that does the work
)

// Main does not return in a process that Run has started. There it calls do
// with the orders of Run. Call it first in main.
func Main[T any](do func(orders T) error) {
	switch os.Getenv(partVariable) {
	case partInit:
		code, err := beInit()
		if err != nil {
			fmt.Fprintln(os.Stderr, "sandbox:", err)
			code = 1
		}
		os.Exit(code)
	case partInside:
		var orders T
		err := json.Unmarshal([]byte(os.Getenv(ordersVariable)), &orders)
		if err == nil {
			err = errors.Join(os.Unsetenv(partVariable), os.Unsetenv(ordersVariable))
		}
		if err == nil {
			err = do(orders)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// Run runs do of Main in a new sandbox, and waits for its end. If ctx ends, or
// this process does, everything in the sandbox is killed. Run needs root.
func Run(ctx context.Context, orders any, stdout, stderr io.Writer) error {
	text, err := json.Marshal(orders)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Env = append(os.Environ(), partVariable+"="+partInit, ordersVariable+"="+string(text))
	c.Stdout, c.Stderr = stdout, stderr
	c.WaitDelay = 5 * time.Second
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
	}
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

// beInit prepares the file system, starts the process that does the work, and
// reaps every process of the sandbox until that one has ended.
func beInit() (code int, err error) {
	if err := prepareFiles(); err != nil {
		return 0, err
	}
	if err := os.Setenv(partVariable, partInside); err != nil {
		return 0, err
	}
	worker, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case pid == worker.Pid && status.Signaled():
			return 0, fmt.Errorf("it was ended by a signal: %v", status.Signal())
		case pid == worker.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// prepareFiles gives the sandbox a /proc that knows its processes. It gets an
// empty /run and an empty /dev/shm, in memory. A killed PostgreSQL leaves files
// in the latter.
func prepareFiles() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		options              string
	}{
		{"none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"none", "/run", "tmpfs", 0, "mode=755"},
		{"none", "/dev/shm", "tmpfs", 0, "mode=1777"},
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return os.Mkdir(Dir, 0o755)
}
