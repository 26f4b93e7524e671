//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// openTerminal returns both ends of a terminal.
func openTerminal(t *testing.T) (person, program *os.File) {
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
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// At a terminal the command reads what a person types, and gets Ctrl-C and
// Ctrl-Z. Ctrl-Z stops latchkey as well, so that a shell sees a stopped job.
func TestTerminal(t *testing.T) {
	t.Parallel()
	person, program := openTerminal(t)
	c := exec.Command(latchkeyPath, "run", "a:b", "sh", "-c", `echo ready; while read line; do echo "got $line"; done`)
	c.Env = append(os.Environ(), databaseVariable+"="+pgtest.Database(t))
	c.Stdin, c.Stdout, c.Stderr = program, program, program
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	output := bufio.NewReader(person)
	wait := func(want string) {
		t.Helper()
		for line := ""; !strings.Contains(line, want); {
			var err error
			if line, err = output.ReadString('\n'); err != nil {
				t.Fatalf("no line with %q: %v", want, err)
			}
		}
	}
	press := func(keys string) {
		t.Helper()
		if _, err := person.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	state := func() byte {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		_, rest, _ := strings.Cut(string(text), ") ")
		return (rest + " ")[0]
	}
	wait("ready")
	press("one\n")
	wait("got one")
	press("\x1a") // Ctrl-Z
	eventually(t, "latchkey is stopped", func() bool { return state() == 'T' })
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	press("two\n")
	wait("got two")
	press("\x03") // Ctrl-C
	_ = c.Wait()
	if got, want := c.ProcessState.ExitCode(), 128+int(syscall.SIGINT); got != want {
		t.Errorf("after Ctrl-C the exit code is %d, want %d", got, want)
	}
}
