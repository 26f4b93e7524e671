//go:build linux

package main

import (
	"bufio"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// latchkeyPath is the program under test: a link to this test binary, which is
// the program if it is called so. Its children are called so, too.
var latchkeyPath string

// freezeGuard is an environment variable that stops a guard at its start.
const freezeGuard = "LATCHKEY_TEST_FREEZE_GUARD"

// self is this test binary, which the tests run as a command: see work.
var self string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workArgument {
		os.Exit(work(os.Args[2:]))
	}
	bound.Lengthen()
	// A guard that a test starts by startChild has this program's name. It must
	// not run the tests, which would start further guards.
	if filepath.Base(os.Args[0]) == "latchkey" || len(os.Args) > 1 && os.Args[1] == guardCommand {
		if len(os.Args) > 1 && os.Args[1] == guardCommand && os.Getenv(freezeGuard) != "" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		main()
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "latchkey-command-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if self, err = os.Executable(); err != nil {
		panic(err)
	}
	latchkeyPath = filepath.Join(dir, "latchkey")
	if err := os.Symlink(self, latchkeyPath); err != nil {
		panic(err)
	}
	_ = os.Unsetenv(databaseVariable)
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most of the time a test waits for other processes
		panic(err)
	}
	code = mariadbtest.Close(pgtest.Main(m))
	return leaktest.Check(code)
}

// A process is a program that a test has started.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr string // the file with its standard error
	ended  chan struct{}
	err    error
}

// start starts latchkey on the database of an address.
func start(t *testing.T, address string, args ...string) *process {
	t.Helper()
	return startProgram(t, []string{databaseVariable + "=" + address}, latchkeyPath, args...)
}

func startProgram(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	stderr, err := os.CreateTemp(t.TempDir(), "stderr") // no pipe: that would end with its children only
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr, p.stderr = stderr, stderr.Name()
	defer stderr.Close()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.stdout = writer, bufio.NewReader(reader)
	err = p.cmd.Start()
	_ = writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close() // ends what it has left behind
		_ = p.cmd.Process.Kill()
		p.wait()
		_ = reader.Close()
	})
	return p
}

// line reads the next line of the standard output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.wait()
		p.t.Fatalf("it printed no line but %q (%v); it has ended with %v and said %s", line, err, p.err, p.said())
	}
	return strings.TrimSuffix(line, "\n")
}

// wantLine waits until a line is printed, and checks it.
func (p *process) wantLine(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("it printed %q, want %q", got, want)
	}
}

// wait waits for the end of the process.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		p.t.Error("a process does not end")
	}
}

// code waits for the end of the process and returns its exit code.
func (p *process) code() int {
	p.t.Helper()
	p.wait()
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Errorf("it ended with %v", p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// wantCode waits for the end of the process, and checks its exit code.
func (p *process) wantCode(want int) {
	p.t.Helper()
	if got := p.code(); got != want {
		p.t.Errorf("it ended with %d, want %d; it said %q", got, want, p.said())
	}
}

// rest returns what was printed and not read, after the end of the process.
func (p *process) rest() string {
	p.t.Helper()
	p.wait()
	text, err := io.ReadAll(p.stdout)
	if err != nil {
		p.t.Error(err)
	}
	return string(text)
}

// said returns what is in the standard error.
func (p *process) said() string {
	p.t.Helper()
	text, err := os.ReadFile(p.stderr)
	if err != nil {
		p.t.Error(err)
	}
	return string(text)
}
