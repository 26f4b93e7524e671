// Package older builds the process under test with an older version of the kit.
// Package worker is that of today, and so it must get along with the names that
// the older version has.
package older

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	kit     = "github.com/latchkey-go/latchkey"
	version = kit + "/internal/chaos/worker.version" // a variable

	subprocess = "internal/subprocess" // of the harness, as package worker
)

// first stands for the last release until there is one.
const first = "55f5f71"

// Last returns the revision of the last release. A release that is tested itself
// is not meant.
func Last(ctx context.Context) string {
	tag, err := output(ctx, "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
	if err != nil {
		return first
	}
	return tag
}

// Build builds the process under test with a revision of this repository's kit.
// It works in dir, and returns the program.
func Build(ctx context.Context, revision, dir string) (program string, err error) {
	module, err := output(ctx, goCommand(), "env", "GOMOD")
	if err != nil {
		return "", err
	}
	if _, err := output(ctx, "git", "cat-file", "-e", revision+"^{commit}"); err != nil {
		return "", fmt.Errorf("revision %s is not in this clone (git fetch --unshallow --tags gets all): %w", revision, err)
	}
	here := filepath.Dir(module)
	root := filepath.Dir(filepath.Dir(here))
	tree, modfile, program := filepath.Join(dir, "tree"), filepath.Join(dir, "go.mod"), filepath.Join(dir, "process")
	for file, as := range map[string]string{"go.mod": modfile, "go.sum": filepath.Join(dir, "go.sum")} {
		text, failed := os.ReadFile(filepath.Join(here, file))
		err = errors.Join(err, failed, os.WriteFile(as, text, 0o600))
	}
	for _, command := range [][]string{
		{"git", "clone", "--quiet", "--shared", "--no-checkout", root, tree},
		{"git", "-C", tree, "checkout", "--quiet", "--detach", revision},
		{"rm", "-r", filepath.Join(tree, subprocess)},
		{"cp", "-r", filepath.Join(root, subprocess), filepath.Join(tree, subprocess)},
		{goCommand(), "mod", "edit", "-replace", kit + "=" + tree, modfile},
		{goCommand(), "-C", here, "build", "-mod=mod", "-modfile", modfile, "-ldflags", "-X " + version + "=" + revision, "-o", program, "./worker/process"},
	} {
		if err == nil {
			_, err = output(ctx, command[0], command[1:]...)
		}
	}
	return program, err
}

func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

// output runs a command and returns what it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("older: %s %s: %w: %s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
