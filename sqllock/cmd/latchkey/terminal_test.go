//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A terminal has a program, and a person who types.
type terminal struct {
	t       *testing.T
	program *exec.Cmd
	person  *os.File
	output  *bufio.Reader
	address string // of the program's database
}

// atTerminalOf starts a program at a terminal of its own.
func atTerminalOf(t *testing.T, name string, args ...string) *terminal {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this system has no terminals: ", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close() // a read of the other end then fails when the program has ended
	c := exec.Command(name, args...)
	address := pgtest.Database(t)
	c.Env = append(os.Environ(), databaseVariable+"="+address, "PS1=", "HISTFILE=", "LATCHKEY="+latchkeyPath)
	c.Stdin, c.Stdout, c.Stderr = program, program, program
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return &terminal{t, c, person, bufio.NewReader(person), address}
}

// startShell starts a bash in which $LATCHKEY is the program.
func startShell(t *testing.T) *terminal {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash: ", err)
	}
	s := atTerminalOf(t, bash, "--norc", "--noprofile", "--noediting", "-i")
	s.press("stty -echo; echo shell is 'ready'\n")
	s.wait("shell is ready")
	return s
}

func (s *terminal) press(keys string) {
	s.t.Helper()
	if _, err := s.person.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for a line with want.
func (s *terminal) wait(want string) {
	s.t.Helper()
	for line := ""; !strings.Contains(line, want); {
		if s.output.Buffered() == 0 && !readable(s.person) {
			s.t.Fatalf("no line with %q", want)
		}
		var err error
		if line, err = s.output.ReadString('\n'); err != nil {
			s.t.Fatalf("no line with %q: %v", want, err)
		}
	}
}

// readable waits until a file can be read, and for at most half a minute.
func readable(f *os.File) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, 30_000) // #nosec G115
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// At a terminal the command reads what a person types, and gets Ctrl-C and
// Ctrl-Z. Ctrl-Z stops latchkey as well, so that a shell sees a stopped job.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := atTerminalOf(t, latchkeyPath, "run", "a:b", "sh", "-c", `echo ready; while read line; do echo "got $line"; done`)
	s.wait("ready")
	s.press("one\n")
	s.wait("got one")
	s.press("\x1a") // Ctrl-Z
	lockertest.Eventually(t, "latchkey is stopped", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.program.Process.Pid))
		return strings.Contains(string(text), ") T ")
	})
	if err := s.program.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.press("two\n")
	s.wait("got two")
	s.press("\x03") // Ctrl-C
	_ = s.program.Wait()
	if got, want := s.program.ProcessState.ExitCode(), 128+int(syscall.SIGINT); got != want {
		t.Errorf("after Ctrl-C the exit code is %d, want %d", got, want)
	}
}

// A program that cannot be executed leaves the terminal to the script around
// latchkey. It had it for a moment.
func TestTerminalAfterNoCommand(t *testing.T) {
	t.Parallel()
	command := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(command, []byte("#!/there/is/no/shell\n"), 0o700); err != nil { //nolint:gosec // to be executed
		t.Fatal(err)
	}
	s := atTerminalOf(t, "sh", "-c", `$LATCHKEY run a:b `+command+`; read line; echo "got $line"`)
	s.wait("failed to execute")
	s.press("one\n")
	s.wait("got one")
}

// A job that a person stops and continues in the background leaves the terminal
// to the shell when it ends.
//
// The job starts no program: a shell in vfork does not stop before the new
// program runs, and that one is stopped.
func TestBackground(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	end := filepath.Join(t.TempDir(), "end")
	if err := unix.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(end, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	s.press("$LATCHKEY run a:b sh -c 'echo is ready; read line < " + end + "; echo it has ended'\n")
	s.wait("is ready")
	s.press("\x1a")
	s.wait("Stopped")
	s.press("bg\n")
	if _, err := pipe.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	// It gets the lock when the first latchkey has left the terminal.
	start(t, s.address, "run", "a:b", "true").wantCode(0)
	s.press("echo shell has the terminal\n")
	s.wait("shell has the terminal")
	s.press("exit\n")
}

// A job that was started in the background gets the terminal with fg, before and
// after it was stopped because it wanted to read.
func TestForeground(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string]string{"stopped": "", "running": "while test ! -e $END; do sleep 0.01; done; "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, end := startShell(t), filepath.Join(t.TempDir(), "end")
			s.press("export END=" + end + "\n")
			s.press("$LATCHKEY run a:b sh -c 'echo is ready; " + reads + "read line; echo got $line; read line; echo got $line' &\n")
			s.wait("is ready")
			if reads == "" {
				s.press("while ! jobs | grep Stopped; do sleep 0.01; done\n")
				s.wait("Stopped")
			}
			s.press("fg\n")
			s.wait("LATCHKEY run") // printed by fg, before it gives the terminal away
			lockertest.Eventually(t, "the job has the terminal", func() bool {
				group, err := unix.IoctlGetInt(int(s.person.Fd()), unix.TIOCGPGRP)
				return err == nil && group != s.program.Process.Pid
			})
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.press("one\n")
			s.wait("got one")
			s.press("two\n")
			s.wait("got two")
			s.press("echo shell has it again\n")
			s.wait("shell has it again")
			s.press("exit\n")
		})
	}
}
