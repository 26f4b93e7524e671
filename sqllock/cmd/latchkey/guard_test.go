//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// childrenOf returns the process ids of the children of a process.
func childrenOf(pid int) (children []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(text)) {
			number, _ := strconv.Atoi(child)
			children = append(children, number)
		}
	}
	return children
}

// A lock delay may be longer than the lease: the guard learns meanwhile that
// the lease goes on.
func TestLongDelayLongerThanLease(t *testing.T) {
	t.Parallel()
	start(t, pgtest.Database(t), "run", "--lease", "5s", "--lock-delay", "6s", "a:b", "true").wantCode(0)
}

// The command has the files of the caller under their numbers, and no socket: it
// could keep the lock's connection open, or speak to the guard. The guard keeps
// no file of the command open but that of errors.
func TestFilesOfTheCommand(t *testing.T) {
	t.Parallel()
	p := startProgram(t, []string{databaseVariable + "=" + pgtest.Database(t)},
		"sh", "-c", `exec 3</dev/zero 5</dev/full; exec "$@"`, "sh", latchkeyPath, "run", "a:b", "sh", "-c", "echo $$; cat")
	pid, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	file := func(pid, number int) string {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, number))
		return name
	}
	if file(pid, 3) != "/dev/zero" || file(pid, 5) != "/dev/full" || len(socketsOf(pid)) > 0 {
		t.Errorf("the command has %q, %q and the sockets %q", file(pid, 3), file(pid, 5), socketsOf(pid))
	}
	guard := guardOf(t, p)
	lockertest.Eventually(t, "the guard has closed its input and output", func() bool {
		return file(guard, 0) == os.DevNull && file(guard, 1) == os.DevNull
	})
}

// A signal that comes while latchkey gets ready ends it, also if the command
// would start at this moment.
func TestSignalRightBeforeTheCommand(t *testing.T) {
	t.Parallel()
	s := &signals{c: make(chan os.Signal, 1)}
	defer s.stop()
	ctx, release := s.endOn(t.Context())
	s.c <- syscall.SIGTERM
	<-ctx.Done()
	if err := release(); codeOf(err) != 128+int(syscall.SIGTERM) {
		t.Errorf("release returns %v, want the exit code of the signal", err)
	}
	if err := release(); codeOf(err) != 128+int(syscall.SIGTERM) {
		t.Errorf("the second call returns %v", err)
	}
	_, release = s.endOn(t.Context())
	if err := release(); err != nil {
		t.Errorf("without a signal: %v", err)
	}
}

// A person cannot start a guard.
func TestGuardOfAPerson(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "0", "77 -- /bin/true true", "x -- /bin/true true", "-- /bin/true true"} {
		c := exec.Command(latchkeyPath, append([]string{guardCommand}, strings.Fields(args)...)...)
		if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != exitUsage {
			t.Errorf("arguments %q: exit code %d, %s", args, c.ProcessState.ExitCode(), out)
		}
	}
}

// A command does not begin under a guard that could not be given the connection
// of the lock.
func TestGuardWithoutTheConnection(t *testing.T) {
	t.Parallel()
	if _, err := startChild(new(watchedLock), nil, []string{"true"}, nil); err == nil {
		t.Error("the guard is said to have a connection")
	}
}

// The guard gets the connections that this program has opened. It does not get a
// socket without a server at its other end, nor one that the caller has passed.
func TestOpenConnections(t *testing.T) {
	socket := func(family, kind int) int {
		fd, err := unix.Socket(family, kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	defer unix.Close(pair[0])
	unix.CloseOnExec(pair[0])
	attempt, question := socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC), socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC)
	if err := unix.Connect(question, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name := func(fd int) string {
		name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		return name
	}
	passed := make(map[string]bool)
	for _, conn := range openConnections() {
		passed[name(conn)] = true
		_ = unix.Close(conn)
	}
	for fd, want := range map[int]bool{pair[0]: true, pair[1]: false, question: false, attempt: false} {
		if passed[name(fd)] != want {
			t.Errorf("%s: passed %v, want %v", name(fd), !want, want)
		}
	}
}

// A connection that was about to close when the guard got it is not that of the
// lock, and the command begins. When no connection is open any more, the command
// ends.
//
// It is not parallel, since the processes of other tests would inherit the
// connections.
func TestGuardWithAConnectionThatCloses(t *testing.T) {
	var conns, servers []int
	for range 2 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETFD, 0) // #nosec G115 -- it is inherited
		}
		if err != nil {
			t.Fatal(err)
		}
		conns, servers = append(conns, pair[0]), append(servers, pair[1])
	}
	_ = unix.Close(servers[1])
	w := &watchedLock{lease: time.Minute, giveUpAt: bootTime() + time.Hour}
	c, err := startChild(w, conns, []string{"sleep", "3600"}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(servers[0])
	for n := range c.notices { // until the guard has ended
		t.Logf("%+v", n)
	}
	if lives(c.pid) {
		t.Error("the command lives without a connection")
	}
	c.end()
}

// A guard that is frozen at its start is given up after a lease, and no command
// begins.
func TestGuardFrozenAtTheStart(t *testing.T) {
	t.Parallel()
	p := startProgram(t, []string{databaseVariable + "=" + pgtest.Database(t), freezeGuard + "=1"}, latchkeyPath,
		"run", "--lease", "5s", "a:b", "echo", "it runs")
	p.wantCode(exitLost)
	if said := p.said(); !strings.Contains(said, "the command did not begin: the guard process") || p.rest() != "" {
		t.Errorf("it said %q", said)
	}
}

// A guard may be killed after the command has ended and before it says how. The
// command is not said to have succeeded then.
func TestGuardEndsWithoutTheStatus(t *testing.T) {
	t.Parallel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{notices: make(chan notice), socket: pair[0], guard: exec.Command("true")}
	if err := c.guard.Start(); err != nil {
		t.Fatal(err)
	}
	go c.listen()
	send(pair[1], notice{Of: ended})
	_ = unix.Close(pair[1])
	if n := <-c.notices; n.Of != ended {
		t.Errorf("the first notice is %v", n)
	}
	if code, known := c.end(); known {
		t.Errorf("the exit code is said to be %d", code)
	}
}

// A process that has ended does not live, also if its parent does not reap it, as
// in a container without an init. So the lock of a killed latchkey is free as soon
// as the guard has ended its command.
func TestUnreapedProcessDoesNotLive(t *testing.T) {
	t.Parallel()
	c := exec.Command("cat")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	if !lives(c.Process.Pid) {
		t.Error("a process that runs does not live")
	}
	endGroup(c.Process.Pid)
	lockertest.Eventually(t, "the process does not live", func() bool { return !lives(c.Process.Pid) })
	if err := syscall.Kill(-c.Process.Pid, 0); err != nil {
		t.Errorf("it was reaped: %v", err)
	}
}
