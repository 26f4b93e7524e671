package fleet

import (
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A Program is a program to start.
type Program struct {
	path string
	env  []string
}

// command returns the program with args.
func (p Program) command(args ...string) *exec.Cmd {
	c := exec.Command(p.path, args...) //nolint:gosec,noctx // a program of the examples, which the Fleet ends
	c.Env = append(os.Environ(), p.env...)
	return c
}

// Build compiles the main package pkg to the file path.
func Build(ctx context.Context, pkg, path string) (Program, error) {
	c := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return Program{path: path}, c.Run()
}

// variable is set in the environment of a process that is to be the program.
const variable = "LATCHKEY_EXAMPLE_PROGRAM"

// Main calls main and exits, in a process that a test has started. In any other
// process it does nothing. TestMain calls it, so that no test waits for a build:
//
//	func TestMain(m *testing.M) {
//		bound.Lengthen()
//		fleet.Main(main)
//		dbtest.Main(m)
//	}
//
// What TestMain does before Main holds for the program, too.
func Main(main func()) {
	if os.Getenv(variable) == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		os.Exit(1)
	}()
	main()
	os.Exit(0)
}

// Test returns a Fleet of the program whose main was given to Main. It is stopped
// when the test ends, and the test fails if an instance does not end well.
func Test(tb testing.TB, env ...string) *Fleet {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	f := &Fleet{Program: Program{self, []string{variable + "=1"}}, Env: env, Log: tb.Output()}
	tb.Cleanup(func() {
		if err := f.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return f
}

// MustStart is Start for a test, which ends if there is an error.
func (f *Fleet) MustStart(tb testing.TB, args ...string) *Instance {
	tb.Helper()
	i, err := f.Start(args...)
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// Run runs the program to its end, and returns all that it prints. A program that
// does not end is killed after a minute.
func (f *Fleet) Run(args ...string) (output string, err error) {
	c := f.Program.command(args...)
	defer time.AfterFunc(timeout, func() { _ = c.Process.Kill() }).Stop()
	c.Env = append(c.Env, f.Env...)
	stdin, err := c.StdinPipe() // open until it ends
	if err != nil {
		return "", err
	}
	defer stdin.Close()
	out, err := c.CombinedOutput()
	return string(out), err
}
