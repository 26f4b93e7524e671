package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bound is how long the tests of one level, or a campaign, may take to catch a
// bug. A test that hangs because of the bug fails then.
const bound = 10 * time.Minute

// ends is how long a program has to end when it is asked to: a campaign ends its
// processes and servers.
const ends = 30 * time.Second

// limited is a script that runs a program whose processes get 4 GiB of memory
// each. A bug may have a test eat all memory, and that test must fail alone.
const limited = `ulimit -d 4194304 && exec "$0" "$@"`

// A tree is a source tree, with one mutant or none. The planted files stay out
// of it: the go command reads them in place of those in the tree.
type tree struct {
	root    string // absolute
	overlay string // the file for the go command's flag -overlay; "" without a mutant
}

// plant returns the tree with m. It writes the planted files to scratch.
func plant(ctx context.Context, root, scratch string, m Mutant) (tree, error) {
	replace := map[string]string{}
	for _, file := range m.Files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return tree{}, fmt.Errorf("mutants: %s does not apply: %w", m.Name, err)
		}
		planted := filepath.Join(scratch, file)
		if err := os.MkdirAll(filepath.Dir(planted), 0o700); err != nil {
			return tree{}, err
		}
		if err := os.WriteFile(planted, text, 0o600); err != nil {
			return tree{}, err
		}
		replace[filepath.Join(root, file)] = planted
	}
	apply := exec.CommandContext(ctx, "git", "apply", m.patch)
	// In a folder of a repository git would only change what that knows.
	apply.Dir, apply.Env = scratch, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(scratch))
	if out, err := apply.CombinedOutput(); err != nil {
		return tree{}, fmt.Errorf("mutants: %s does not apply: %w\n%s", m.Name, err, out)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return tree{}, err
	}
	t := tree{root, filepath.Join(scratch, "overlay.json")}
	return t, os.WriteFile(t.overlay, overlay, 0o600)
}

// caught runs the tests that should notice m, which is planted in t: first those
// of make test, then those of make test-long. It returns what they print, or ""
// if none fails.
//
// A test that also fails without a bug has caught nothing. That is an error.
func (t tree) caught(ctx context.Context, m Mutant) (string, error) {
	for _, level := range []string{"-skip=^TestLong", "-run=^TestLong"} {
		out, failed, err := t.test(ctx, slices.Concat(m.Run, []string{level})...)
		if err != nil {
			return "", fmt.Errorf("mutants: with %s: %w", m.Name, err)
		}
		if !failed {
			continue
		}
		what, again := "the package", level // for a hang, or a failure outside the tests
		if name := failedTest.FindStringSubmatch(out); name != nil {
			what, again = name[1], "-run=^"+name[1]+"$"
		}
		clean := tree{root: t.root}
		if without, failed, err := clean.test(ctx, slices.Concat(m.Run, []string{again})...); err != nil || failed {
			return "", fmt.Errorf("mutants: %s fails without %s, too: %w\n%s", what, m.Name, err, without)
		}
		return out, nil
	}
	return "", nil
}

var failedTest = regexp.MustCompile(`--- FAIL: (Test\w*)`)

// test runs tests of the package args[0], and ends them when one has failed.
func (t tree) test(ctx context.Context, args ...string) (out string, failed bool, err error) {
	dir := filepath.Join(t.root, args[0])
	command := slices.Concat([]string{"test", "-v", "-count=1", "-timeout", bound.String(), "."}, args[1:])
	out, err = t.run(ctx, dir, failedTest, command...)
	switch exit := (*exec.ExitError)(nil); {
	case ctx.Err() != nil:
		return out, false, ctx.Err()
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return out, false, fmt.Errorf("the tests do not compile:\n%s", out)
	case err != nil && !errors.As(err, &exit):
		return out, false, err
	}
	return out, err != nil, nil
}

// violated runs a campaign, and returns what it prints if it has found a
// violation, or "".
func (t tree) violated(ctx context.Context, flags []string) (string, error) {
	histories, err := os.MkdirTemp("", "histories-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(histories)
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	dir := filepath.Join(t.root, "internal/chaos")
	out, err := t.run(bounded, dir, nil, slices.Concat([]string{"run", "."}, flags, []string{"-out", histories})...)
	if bounded.Err() != nil {
		return "", fmt.Errorf("mutants: a campaign: %w\n%s", bounded.Err(), out)
	}
	if err == nil || !saysViolated(out) {
		return "", nil
	}
	return out, nil
}

// saysViolated reports whether a campaign has found a violation. One that could not
// begin has the word nowhere.
func saysViolated(output string) bool { return strings.Contains(output, "VIOLATED") }

// run runs the go command, and returns what it and its children print. It asks
// all of them to end when ctx ends, or when a line matches enough: the go
// command would not pass that on to what it runs.
func (t tree) run(ctx context.Context, dir string, enough *regexp.Regexp, args ...string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := os.Getenv("GO")
	if program == "" {
		program = "go"
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, program}, args...)...) //nolint:gosec // what patches of this folder name
	flags := os.Getenv("GOFLAGS") + " -vet=off"
	if t.overlay != "" {
		flags += " -overlay=" + t.overlay // children that build programs build them with the bug, too
	}
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS="+flags)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = ends
	out := &watchedOutput{enough: enough, cancel: cancel}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	return out.text.String(), err
}

// A watchedOutput keeps what is written, and calls cancel when that matches
// enough.
type watchedOutput struct {
	text   bytes.Buffer
	enough *regexp.Regexp // may be nil
	cancel func()
}

func (o *watchedOutput) Write(p []byte) (int, error) {
	if o.enough != nil && o.enough.Match(p) {
		o.cancel()
	}
	return o.text.Write(p)
}
