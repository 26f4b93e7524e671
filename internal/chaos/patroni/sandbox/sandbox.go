//go:build linux

// Package sandbox runs this program once more, in process, mount, network and
// IPC namespaces of its own. Nothing that happens there shows outside, and
// nothing is left of it. The kernel ends every process of the namespace with its
// first one, and then removes the mounts, networks and shared memory. A kill at
// any moment has the same effect.
package sandbox

import (
	"context"
	"errors"
	"io"
	"os/exec"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// Dir is a directory in memory that only the sandbox sees. Any account may pass
// through it.
const Dir = "/run/latchkey"

// first is the first process of a sandbox. It gets an empty /run and an empty
// /dev/shm, in memory: a killed PostgreSQL leaves files in the latter. Then it
// waits for the program, and reaps every other process.
const first = `mount -t tmpfs -o mode=755 none /run && mount -t tmpfs -o mode=1777 none /dev/shm && mkdir -m 755 ` + Dir + ` && "$0"; exit $?`

const role = "sandbox"

// Main does not return in a process that Run has started. There it calls do
// with the orders of Run. Call it first in main.
func Main[T any](do func(ctx context.Context, orders T) error) { subprocess.Main(role, do) }

// Run runs do of Main in a new sandbox, waits for its end, and returns what it
// has printed. If ctx ends, or this process does, everything in the sandbox is
// killed. Run needs root.
func Run(ctx context.Context, orders any) (output []byte, err error) {
	c, err := subprocess.Command(role, orders)
	if err != nil {
		return nil, err
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return nil, err
	}
	c.Args = []string{unshare, "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--ipc", "sh", "-c", first, c.Path}
	c.Path = unshare
	p, err := subprocess.StartCommand(c)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	output, err = io.ReadAll(p.Stdout)
	err = errors.Join(err, p.Wait())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return output, err
}
