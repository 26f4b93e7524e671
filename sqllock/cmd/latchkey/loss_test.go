//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A fleet is two hosts that run commands under one key. The commands of the
// tests write "overlap" if two of them live at once.
type fleet struct {
	t       *testing.T
	address string
	file    string
	opts    []string // of latchkey run
}

func newFleet(t *testing.T, address string, opts ...string) *fleet {
	return &fleet{t, address, filepath.Join(t.TempDir(), "work"), opts}
}

// hold starts a command that stays, and returns its process and its process id.
func (f *fleet) hold(mode string) (p *process, pid int) {
	f.t.Helper()
	p = f.run(mode, f.file)
	pid, err := strconv.Atoi(p.line())
	if err != nil {
		f.t.Fatal(err)
	}
	return p, pid
}

func (f *fleet) run(mode, file string) *process {
	f.t.Helper()
	args := append(append([]string{"run"}, f.opts...), "a:b")
	return start(f.t, f.address, append(args, worker(mode, file)...)...)
}

// wantNext waits for the end of the next command, and checks what the commands
// have written.
func (f *fleet) wantNext(next *process, file string, want string) {
	f.t.Helper()
	next.wantCode(0)
	if got := readWork(f.t, file); got != want {
		f.t.Errorf("the commands wrote %q, want %q", got, want)
	}
}

func (f *fleet) signal(pid int, s syscall.Signal) {
	f.t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		f.t.Fatal(err)
	}
}

// wantLost checks that latchkey reports a loss.
func (p *process) wantLost() {
	p.t.Helper()
	p.wantCode(exitLost)
	if !strings.Contains(p.said(), "lost") {
		p.t.Errorf("it says %q", p.said())
	}
}

// guardOf waits until latchkey has a guard, and returns its process id.
func guardOf(t *testing.T, p *process) (pid int) {
	t.Helper()
	eventually(t, "latchkey has a guard", func() bool {
		for _, child := range childrenOf(p.cmd.Process.Pid) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if strings.Contains(string(line), "\x00"+guardCommand+"\x00") { // otherwise it may not be executed yet
				pid = child
			}
		}
		return pid != 0
	})
	return pid
}

// cut has the server end the connection with the lock.
func cut(t *testing.T, address string) {
	t.Helper()
	db, err := openAddress(address, false)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var ended bool
	number := uint64(sqllock.Namespace("a").Key("b").Int64())
	err = db.QueryRowContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid = $1 AND objid = $2 AND objsubid = 1`,
		number>>32, number&0xffffffff).Scan(&ended)
	if err != nil || !ended {
		t.Fatal(ended, err)
	}
}

// A killed latchkey takes its command with it, and the children of the command.
// Only then is the lock free.
func TestKilled(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		f := newFleet(t, address)
		p, _ := f.hold("parent") // the line is its child's
		next := f.run("once", f.file+"-child")
		f.signal(p.cmd.Process.Pid, syscall.SIGKILL)
		f.wantNext(next, f.file+"-child", "begin begin end")
		if got := readWork(t, f.file); got != "begin" || !isFree(t, f.file) {
			t.Errorf("the command wrote %q", got)
		}
		if !strings.Contains(p.said(), "latchkey itself has ended") { // it did not wait for the lease
			t.Errorf("the guard says %q", p.said())
		}
	})
}

// The server keeps the lock of a killed latchkey until the guard has ended what
// the command has started.
func TestLockOutlivesLatchkey(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"PostgreSQL": pgtest.Database(t), "MariaDB": mariadbtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, address)
			p, child := f.hold("parent")
			guard := guardOf(t, p)
			f.signal(guard, syscall.SIGSTOP)
			f.signal(p.cmd.Process.Pid, syscall.SIGKILL)
			p.wait()
			start(t, address, "run", "-n", "a:b", "true").wantCode(1)
			f.signal(child, 0) // it lives
			next := f.run("once", f.file+"-child")
			f.signal(guard, syscall.SIGCONT)
			f.wantNext(next, f.file+"-child", "begin begin end")
		})
	}
}

// While latchkey is frozen, its guard ends the command before the lease is over.
func TestFrozen(t *testing.T) {
	eachDatabase(t, func(t *testing.T, address string) {
		f := newFleet(t, address, "--lease", "2s")
		p, _ := f.hold("parent")
		next := f.run("once", f.file+"-child")
		f.signal(p.cmd.Process.Pid, syscall.SIGSTOP)
		f.wantNext(next, f.file+"-child", "begin begin end")
		f.signal(p.cmd.Process.Pid, syscall.SIGCONT)
		p.wantLost()
		if !strings.Contains(p.said(), "the guard has ended the command") {
			t.Errorf("it says %q", p.said())
		}
	})
}

// A frozen command keeps its lock for longer than the lease. It is killed when
// the lock is lost.
func TestFrozenCommand(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	f := newFleet(t, address, "--lease", "2s")
	p, child := f.hold("stay")
	f.signal(child, syscall.SIGSTOP)
	start(t, address, "run", "-w", "2.5", "a:b", "true").wantCode(1)
	next := f.run("once", f.file)
	cut(t, address)
	f.wantNext(next, f.file, "begin begin end")
	p.wantLost()
}

// A command whose lock is lost ends before the next one starts, also if it
// ignores SIGTERM.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"stay", "stubborn", "parent"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			address := pgtest.Database(t)
			f := newFleet(t, address)
			p, _ := f.hold(mode)
			file := f.file
			if mode == "parent" {
				file += "-child"
			}
			next := f.run("once", file)
			cut(t, address)
			f.wantNext(next, file, "begin begin end")
			p.wantLost()
		})
	}
}

// A command is asked to end before it is killed.
func TestConnectionLostTerminates(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	f := newFleet(t, address, "--kill-after", "1m")
	p := f.run("signals", f.file)
	p.wantLine("ready")
	cut(t, address)
	p.wantLine(syscall.SIGTERM.String())
	p.wantLost()
}

// Latchkey kills a command that ignores SIGTERM, also if the guard is frozen.
func TestConnectionLostWithFrozenGuard(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	f := newFleet(t, address)
	p, _ := f.hold("stubborn")
	f.signal(guardOf(t, p), syscall.SIGSTOP)
	next := f.run("once", f.file)
	cut(t, address)
	f.wantNext(next, f.file, "begin begin end")
	p.wantLost()
}

// The guard sees a lost connection while latchkey is frozen.
func TestConnectionLostWhileFrozen(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	f := newFleet(t, address, "--lease", "1m") // which is not what ends it
	p, _ := f.hold("stubborn")
	next := f.run("once", f.file)
	f.signal(p.cmd.Process.Pid, syscall.SIGSTOP)
	cut(t, address)
	f.wantNext(next, f.file, "begin begin end")
	f.signal(p.cmd.Process.Pid, syscall.SIGCONT)
	p.wantLost()
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

// Without its guard a command is not safe, so it ends.
func TestGuardKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, pgtest.Database(t))
	p, _ := f.hold("stay")
	f.signal(guardOf(t, p), syscall.SIGKILL)
	p.wantLost()
	f.wantNext(f.run("once", f.file), f.file, "begin begin end")
}

// A restart of the server ends the command with its lock, and other commands run
// afterwards. A lock in a table outlives the restart, and so does its command.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]string{"advisory": nil, "table": {"--lease-table"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			f := newFleet(t, cluster.DSN(""), opts...)
			p, _ := f.hold("stay")
			next := f.run("once", f.file) // it waits, or it comes too early and fails
			if err := cluster.Restart(true); err != nil {
				t.Fatal(err)
			}
			if opts == nil {
				p.wantLost()
			} else {
				_ = p.stdin.Close()
				p.wantCode(0)
			}
			next.wait()
			f.run("once", f.file).wantCode(0)
			if got := readWork(t, f.file); strings.Contains(got, "overlap") || strings.Count(got, "begin") < 2 {
				t.Errorf("the commands wrote %q", got)
			}
		})
	}
}

// A server that does not respond any more keeps the lock for the lease. The
// command ends before that, and SIGKILL leaves room for the next.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	f := newFleet(t, cluster.DSN(""), "--lease", "2s")
	p, _ := f.hold("stubborn")
	if err := cluster.Freeze(); err != nil {
		t.Fatal(err)
	}
	p.wantLost()
	if err := cluster.Thaw(); err != nil {
		t.Fatal(err)
	}
	f.wantNext(f.run("once", f.file), f.file, "begin begin end")
}
