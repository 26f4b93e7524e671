//go:build linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A shellAtTerminal is an interactive bash, and a person who types.
type shellAtTerminal struct {
	t       *testing.T
	person  *os.File
	output  *bufio.Reader
	address string
}

// startShell starts a bash in which $LATCHKEY is the program.
func startShell(t *testing.T) *shellAtTerminal {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash: ", err)
	}
	person, program := openTerminal(t)
	s := &shellAtTerminal{t: t, person: person, output: bufio.NewReader(person), address: pgtest.Database(t)}
	c := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i")
	c.Env = append(os.Environ(), databaseVariable+"="+s.address, "PS1=", "HISTFILE=", "LATCHKEY="+latchkeyPath)
	c.Stdin, c.Stdout, c.Stderr = program, program, program
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = program.Close() // a read of the other end fails when the shell has ended
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	s.press("stty -echo; echo shell is 'ready'\n")
	s.wait("shell is ready")
	return s
}

func (s *shellAtTerminal) press(keys string) {
	s.t.Helper()
	if _, err := s.person.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits for a line with want.
func (s *shellAtTerminal) wait(want string) {
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
	eventually(t, "the lock is free, so latchkey has left the terminal", func() bool {
		return start(t, s.address, "run", "-n", "a:b", "true").code() == 0
	})
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
			s.wait("LATCHKEY run") // printed by fg
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
