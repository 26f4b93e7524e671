//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
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

// patient is the delay from a grant to the start of its command. A holder whose
// connection was cut ends its command in half of that time.
var patient = []string{"--lock-delay", "4s"}

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

// signal sends a signal. After SIGSTOP it waits until each thread has stopped.
func (f *fleet) signal(pid int, s syscall.Signal) {
	f.t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		f.t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	lockertest.Eventually(f.t, "the process has stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return !slices.ContainsFunc(threads, func(thread string) bool {
			text, _ := os.ReadFile(thread)
			return len(text) > 0 && !strings.Contains(string(text), ") T ")
		})
	})
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
	lockertest.Eventually(t, "latchkey has a guard", func() bool {
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
func (f *fleet) cut() {
	f.t.Helper()
	db, err := openAddress(f.address, false)
	if err != nil {
		f.t.Fatal(err)
	}
	defer db.Close()
	var ended bool
	number := uint64(sqllock.Namespace("a").Key("b").Int64())
	err = db.QueryRowContext(f.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid = $1 AND objid = $2 AND objsubid = 1`,
		number>>32, number&0xffffffff).Scan(&ended)
	if err != nil || !ended {
		f.t.Fatal(ended, err)
	}
}

// A command begins after the lock delay, also by default. When its lock is lost
// it is asked to end, and latchkey reports the loss.
// Then the next command runs.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, pgtest.Database(t), "--kill-after", "1m")
	began := time.Now()
	p := f.run("signals", f.file)
	p.wantLine("ready")
	if took := time.Since(began); took < defaultLockDelay {
		t.Errorf("the command began after %v, want the lock delay of %v before it", took, defaultLockDelay)
	}
	f.cut()
	p.wantLine(syscall.SIGTERM.String())
	p.wantLost()
	f.wantNext(f.run("once", f.file), f.file, "begin begin end")
}

// Each fault ends the lock of a command while the next host waits for it. Each
// time the first command has ended when the next one begins. If latchkey lives
// on, it reports the loss.
func TestLongLoss(t *testing.T) {
	t.Parallel()
	// A host is latchkey with its command, and what a fault needs to know of it.
	type host struct {
		*fleet
		latchkey, guard, command int
	}
	kill := func(h *host) { h.signal(h.latchkey, syscall.SIGKILL) }
	freeze := func(h *host) { h.signal(h.latchkey, syscall.SIGSTOP) }
	thaw := func(h *host) { h.signal(h.latchkey, syscall.SIGCONT) }
	cut := func(h *host) { h.cut() }
	none := func(*host) {}
	servers, sqlite, postgres := []string{"PostgreSQL", "MariaDB"}, []string{"SQLite"}, []string{"PostgreSQL"}
	tests := []struct {
		name         string
		databases    []string
		mode         string // of the command; "parent" has a child, which must end as well
		opts         []string
		fault, after func(*host) // after comes when the next command has ended
		says         string
		killed       bool // latchkey is, and reports nothing
	}{
		// The guard does not wait for the lease. In a file of SQLite the lock does.
		{"killed", servers, "parent", nil, kill, none, "latchkey itself has ended", true},
		{"killed", sqlite, "parent", []string{"--lease", "5s"}, kill, none, "latchkey itself has ended", true},
		{"frozen", append(servers, sqlite...), "parent", []string{"--lease", "5s"}, freeze, thaw, "the guard has ended the command", false},
		{"cut", postgres, "stay", patient, cut, none, "", false},
		{"cut, SIGTERM is ignored", postgres, "stubborn", patient, cut, none, "", false},
		{"cut, with a child", postgres, "parent", patient, cut, none, "", false},
		{"cut, guard frozen", postgres, "stubborn", patient, func(h *host) {
			h.signal(h.guard, syscall.SIGSTOP)
			h.cut()
		}, none, "", false},
		{"cut while frozen", postgres, "stubborn", append([]string{"--lease", "1m"}, patient...), func(h *host) {
			freeze(h)
			h.cut()
		}, thaw, "", false},
		// A frozen command keeps its lock for longer than the lease.
		{"command frozen", postgres, "stay", append([]string{"--lease", "5s"}, patient...), func(h *host) {
			h.signal(h.command, syscall.SIGSTOP)
			start(h.t, h.address, "run", "-w", "6", "a:b", "true").wantCode(1)
			h.cut()
		}, none, "", false},
		// Without its guard a command is not safe. One that is frozen for a lease is none.
		{"guard frozen", postgres, "parent", []string{"--lease", "5s"}, func(h *host) { h.signal(h.guard, syscall.SIGSTOP) }, none, "the guard process", false},
		// If it is killed, the command ends at once, with its child.
		{"guard killed", postgres, "parent", patient, func(h *host) { h.signal(h.guard, syscall.SIGKILL) }, none, "the guard process", false},
	}
	for _, tt := range tests {
		for _, database := range tt.databases {
			t.Run(tt.name+", "+database, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, addresses[database](t), tt.opts...)
				p, command := f.hold(tt.mode)
				h := &host{f, p.cmd.Process.Pid, guardOf(t, p), command}
				file := f.file
				if tt.mode == "parent" {
					file += "-child"
				}
				next := f.run("once", file)
				tt.fault(h)
				f.wantNext(next, file, "begin begin end")
				if got := readWork(t, f.file); tt.mode == "parent" && (got != "begin" || !isFree(t, f.file)) {
					t.Errorf("the command wrote %q", got)
				}
				tt.after(h)
				if tt.killed {
					p.wait()
				} else {
					p.wantLost()
				}
				if !strings.Contains(p.said(), tt.says) {
					t.Errorf("it says %q, want %q", p.said(), tt.says)
				}
			})
		}
	}
}

// When the guard is killed, what is left of the process group of the command is not
// asked to end: it gets SIGKILL at once.
func TestGuardKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, pgtest.Database(t), "--kill-after", "1m")
	p := f.run("parent of signals", f.file)
	p.wantLine("ready")
	f.signal(guardOf(t, p), syscall.SIGKILL)
	p.wantLost()
	if text := p.rest(); text != "" {
		t.Errorf("the child of the command printed %q", text)
	}
}

// The guard has the connection of the lock open. So the server keeps the lock of a
// killed latchkey until the guard has ended, which TestLongRaces shows. A frozen
// guard cannot show it: the system continues it when latchkey ends.
func TestGuardHasTheConnection(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"PostgreSQL": pgtest.Database(t), "MariaDB": mariadbtest.Database(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, address)
			p, _ := f.hold("stay")
			theirs := socketsOf(guardOf(t, p))
			if !slices.ContainsFunc(socketsOf(p.cmd.Process.Pid), func(socket string) bool { return slices.Contains(theirs, socket) }) {
				t.Error("latchkey and its guard have no connection in common")
			}
		})
	}
}

// socketsOf names the sockets that a process has open.
func socketsOf(pid int) (sockets []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if name, err := os.Readlink(file); err == nil && strings.HasPrefix(name, "socket:") {
			sockets = append(sockets, name)
		}
	}
	return sockets
}

// A restart of the server ends the command with its lock, and other commands run
// afterwards. A lock in a table outlives the restart, and so does its command.
func TestLongRestart(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]string{"advisory": nil, "table": {"--lease-table"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			f := newFleet(t, cluster.DSN(""), append(opts, patient...)...)
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
func TestLongServerFrozen(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	f := newFleet(t, cluster.DSN(""), "--lease", "5s")
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

// Two hosts start a command under one key at the same moment, again and again.
// Both run, and never at once. In every third round the host that comes first
// is killed while its command runs, and in another third its connection is cut.
func TestLongRaces(t *testing.T) {
	t.Parallel()
	f := newFleet(t, pgtest.Database(t))
	begun, ended := 0, 0
	for round := range 12 {
		f.opts = []string{"--lock-delay", "0s"} // without a cut nothing needs the delay
		if round%3 == 2 {
			f.opts = patient
		}
		if round%3 == 0 {
			first, second := f.run("once", f.file), f.run("once", f.file)
			first.wantCode(0)
			second.wantCode(0)
			begun, ended = begun+2, ended+2
		} else {
			first, _ := f.hold("lasting")
			second := f.run("once", f.file)
			if round%3 == 1 {
				f.signal(first.cmd.Process.Pid, syscall.SIGKILL)
			} else {
				f.cut()
				first.wantLost()
			}
			second.wantCode(0)
			begun, ended = begun+2, ended+1
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	got := readWork(t, f.file)
	if strings.Contains(got, "overlap") || strings.Count(got, "begin") != begun || strings.Count(got, "end") != ended {
		t.Errorf("%d commands began, %d ended and %d overlapped, want %d, %d and 0",
			strings.Count(got, "begin"), strings.Count(got, "end"), strings.Count(got, "overlap"), begun, ended)
	}
}
