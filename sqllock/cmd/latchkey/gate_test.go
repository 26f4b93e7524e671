//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// A command does not begin before the guard knows its process group. So a kill
// of latchkey at this moment leaves nothing behind.
func TestLongNoCommandWithoutItsGuard(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			t.Parallel()
			address := pgtest.Database(t)
			f := newFleet(t, address, "--lock-delay", "1s")
			p := f.run("parent", f.file)
			guard := guardOf(t, p)
			f.signal(guard, syscall.SIGSTOP)
			lockertest.Eventually(t, "it has a command", func() bool { return len(childrenOf(p.cmd.Process.Pid)) == 2 })
			start(t, address, "run", "-n", "another:key", "true").wantCode(0) // time for the command to begin
			if got := readWork(t, f.file); got != "" {
				t.Errorf("while the guard was frozen the command wrote %q", got)
			}
			if killed {
				f.signal(p.cmd.Process.Pid, syscall.SIGKILL)
			}
			f.signal(guard, syscall.SIGCONT)
			if killed {
				f.wantNext(f.run("once", f.file+"-child"), f.file+"-child", "begin end")
				return
			}
			p.line()
		})
	}
}

// A lock delay may be longer than the lease: the guard learns meanwhile that
// the lease goes on.
func TestLongDelayLongerThanLease(t *testing.T) {
	t.Parallel()
	start(t, pgtest.Database(t), "run", "--lease", "5s", "--lock-delay", "6s", "a:b", "true").wantCode(0)
}

// The command has the files of the caller under their numbers, and no socket: it
// could keep the lock's connection open, or speak to the guard.
func TestFilesOfTheCommand(t *testing.T) {
	t.Parallel()
	p := startProgram(t, []string{databaseVariable + "=" + pgtest.Database(t)},
		"sh", "-c", `exec 3</dev/zero 5</dev/full; exec "$@"`, "sh", latchkeyPath, "run", "a:b", "sh", "-c", "echo $$; cat")
	pid := p.line()
	want := map[string]string{"3": "/dev/zero", "5": "/dev/full"}
	files, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		got, _ := os.Readlink("/proc/" + pid + "/fd/" + file.Name())
		if strings.HasPrefix(got, "socket:") {
			t.Errorf("file %s of the command is a socket", file.Name())
		}
		if got == want[file.Name()] {
			delete(want, file.Name())
		}
	}
	if len(want) > 0 {
		t.Errorf("the command has not got %v", want)
	}
}

// A command that is killed with the process of latchkey has this signal from
// the system also after the gate.
func TestLongParentDeathSignal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, pgtest.Database(t))
	p, child := f.hold("stubborn")
	guard := guardOf(t, p)
	f.signal(guard, syscall.SIGSTOP)
	defer f.signal(guard, syscall.SIGCONT)
	f.signal(p.cmd.Process.Pid, syscall.SIGKILL)
	p.wait()
	lockertest.Eventually(t, "the command has ended", func() bool { return syscall.Kill(child, 0) != nil || isFree(t, f.file) })
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

// A gate of a person is rejected.
func TestGateOfAPerson(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"0", "77", "x"} {
		c := exec.Command(latchkeyPath, gateCommand, file, "/bin/true", "true")
		if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != exitUsage {
			t.Errorf("file %s: exit code %d, %s", file, c.ProcessState.ExitCode(), out)
		}
	}
}

// A signal that reaches the gate is never lost, also if the gate opens at this
// moment: it ends the gate or the command.
//
// It does not run in parallel: a process that another test starts at this moment
// would inherit the socket of the gate.
func TestLongSignalAtTheGate(t *testing.T) {
	for range 50 {
		c := exec.Command("/bin/cat")
		stdin, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs, err := throughGate(c)
		if err != nil {
			t.Fatal(err)
		}
		c.Path = latchkeyPath
		err = c.Start()
		_ = unix.Close(theirs)
		if err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the gate waits", func() bool { return reads(c.Process.Pid, theirs) })
		_ = c.Process.Signal(syscall.SIGTERM)
		_, _ = unix.Write(ours, []byte{1})
		lost := time.AfterFunc(30*time.Second, func() { _ = stdin.Close() })
		_ = c.Wait()
		lost.Stop()
		_ = unix.Close(ours)
		if got := exitCode(c.ProcessState); got != 128+int(syscall.SIGTERM) {
			t.Fatalf("the exit code is %d", got)
		}
	}
}

// reads reports whether a thread of a process waits in read(2) for a file.
func reads(pid, file int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	return slices.ContainsFunc(threads, func(thread string) bool {
		text, _ := os.ReadFile(thread)
		return strings.HasPrefix(string(text), fmt.Sprintf("%d %#x ", unix.SYS_READ, file))
	})
}

// A guard that cannot receive a file of latchkey ends, and latchkey with it.
// Otherwise it would guard without the lock's connection, or the command would
// never begin.
func TestLongGuardWithoutFiles(t *testing.T) {
	t.Parallel()
	for file, received := range map[string]bool{"the connection": false, "the gate": true} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, pgtest.Database(t), "--lock-delay", "1s")
			holder, _ := f.hold("stay")
			p := f.run("once", f.file+"-next")
			guard := guardOf(t, p)
			lockertest.Eventually(t, "the guard waits for orders", func() bool { return ignores(guard, syscall.SIGTERM) })
			files := func() int {
				open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", guard))
				return len(open)
			}
			before := files()
			if received {
				_ = holder.stdin.Close()
				lockertest.Eventually(t, "the guard has the connection", func() bool { return files() > before })
			}
			if err := unix.Prlimit(guard, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 2, Max: 2}, nil); err != nil {
				t.Fatal(err)
			}
			_ = holder.stdin.Close()
			p.wantLost()
			if got := readWork(t, f.file+"-next"); got != "" || !strings.Contains(p.said(), errNoFile.Error()) {
				t.Errorf("the command wrote %q, and latchkey says %q", got, p.said())
			}
		})
	}
}

// A command does not begin under a guard that could not be given the connection
// of the lock. The connection here has no descriptor.
func TestGuardWithoutTheConnection(t *testing.T) {
	g, err := startGuard()
	if err != nil {
		t.Fatal(err)
	}
	defer g.release()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := g.hold(new(watchedLock), &sockets{all: []net.Conn{here}}); err == nil {
		t.Error("the guard is said to have a connection")
	}
	if err := g.hold(&watchedLock{rows: true}, new(sockets)); err != nil {
		t.Errorf("a lock in a table: %v", err)
	}
}

// The guard has nothing of the caller's: neither the address of the database,
// nor a standard file but that of errors.
func TestGuardIsBare(t *testing.T) {
	t.Parallel()
	f := newFleet(t, pgtest.Database(t))
	p, _ := f.hold("stay")
	proc := fmt.Sprintf("/proc/%d/", guardOf(t, p))
	if env, err := os.ReadFile(proc + "environ"); err != nil || len(env) > 0 {
		t.Errorf("its environment is %q, %v", env, err)
	}
	for _, fd := range []string{"0", "1"} {
		if file, err := os.Readlink(proc + "fd/" + fd); err != nil || file != os.DevNull {
			t.Errorf("file %s is %s, %v", fd, file, err)
		}
	}
}

// ignores reports whether a process ignores a signal.
func ignores(pid int, s syscall.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	signals, _ := strconv.ParseUint(mask, 16, 64)
	return signals&(1<<(s-1)) != 0
}
