package mutants

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// ends is how long a program has to end when it is asked to: a campaign ends its
// processes and servers.
const ends = 30 * time.Second

// apply applies a patch to the tree at dir, or fails if it does not fit as it stands.
func apply(ctx context.Context, dir, patch string, options ...string) (string, error) {
	// In a folder of a repository git would only look at what that knows.
	ceiling := "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)
	return runWith(ctx, dir, []string{ceiling}, "git", slices.Concat([]string{"apply"}, options, []string{patch})...)
}

// run runs a program. If that is the go command, it leaves vet out, which is no
// part of catching a bug.
func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	return runWith(ctx, dir, []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " -vet=off"}, program, args...)
}

// runWith runs a program, with this in its environment as well, and returns what it
// and its children say. When ctx ends, it asks all of them to end, as a process
// group: the go command would not pass that on to what it runs.
func runWith(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // what patches of this folder name
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = ends
	out, err := cmd.CombinedOutput()
	return string(out), err
}
