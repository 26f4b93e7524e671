//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

type orders struct {
	File string // to write to
	Hang bool   // leave a program behind, and wait to be killed
}

func TestMain(m *testing.M) {
	sandbox.Main(inside)
	subprocess.Main("parent", func(ctx context.Context, o orders) error { return sandbox.Run(ctx, o, os.Stderr, os.Stderr) })
	os.Exit(m.Run())
}

// inside makes a network, and has a host in it write to the file whom it
// reaches.
func inside(o orders) error {
	hosts, err := network.New("left", "right", "third")
	if err != nil {
		return err
	}
	left, right, third := hosts[0], hosts[1], hosts[2]
	var lines []string
	look := func(what string) {
		if o.Hang {
			return // it is about what is left
		}
		for _, h := range []network.Host{right, third} {
			result := "reaches"
			if ping(left, h) != nil {
				result = "misses"
			}
			lines = append(lines, what+": left "+result+" "+h.Name)
		}
	}
	look("whole")
	if err := network.Cut(left); err != nil {
		return err
	}
	look("cut")
	if err := network.Aside(left, right); err != nil {
		return err
	}
	look("aside")
	if err := network.Mend(left, right); err != nil {
		return err
	}
	look("mended")
	if err := os.WriteFile(filepath.Join(sandbox.Dir, "private"), nil, 0o600); err != nil {
		return err
	}
	if err := leaveMemory(); err != nil {
		return err
	}
	if o.Hang {
		if err := left.Command(nil, "tail", "-f", o.File).Start(); err != nil {
			return err
		}
	}
	if err := os.WriteFile(o.File, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		return err
	}
	if o.Hang {
		time.Sleep(time.Hour) // not for ever: the runtime would call that a deadlock
	}
	return errors.New("on purpose")
}

// memory is a file, and the key of a segment, that inside leaves in shared memory
// as a killed PostgreSQL does.
const (
	memoryFile = "/dev/shm/latchkey-sandbox"
	memoryKey  = 0x6c61746b
)

func leaveMemory() error {
	if err := os.WriteFile(memoryFile, nil, 0o600); err != nil {
		return err
	}
	const create = 0o1000 // IPC_CREAT
	if _, _, errno := syscall.Syscall(syscall.SYS_SHMGET, memoryKey, 4096, create|0o600); errno != 0 {
		return errno
	}
	return nil
}

// ping connects to a port that refuses, with the tools of bash. A host that is
// cut off does not answer at all: the five seconds are for a busy machine.
func ping(from, to network.Host) error {
	return from.Command(nil, "timeout", "5", "bash", "-c", "echo > /dev/tcp/"+to.IP+"/9 || [ $? = 1 ]").Run()
}

// needRoot skips a test where namespaces cannot be made.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	for _, program := range []string{"ip", "nsenter", "bash", "timeout"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	if out, err := exec.Command("unshare", "--pid", "--mount", "--net", "--fork", "ip", "link", "add", "latchkey0", "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("this machine does not allow namespaces: %s", out)
	}
}

func TestLongNetwork(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "result")
	var stderr strings.Builder
	if err := sandbox.Run(t.Context(), orders{File: file}, &stderr, &stderr); err == nil || !strings.Contains(stderr.String(), "on purpose") {
		t.Fatalf("it ends with %v: %s", err, &stderr)
	}
	got, err := os.ReadFile(file)
	want := `whole: left reaches right
whole: left reaches third
cut: left misses right
cut: left misses third
aside: left reaches right
aside: left misses third
mended: left reaches right
mended: left reaches third`
	if err != nil || string(got) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	nothingLeft(t)
}

// Nothing outlives a sandbox that is killed, or whose parent is.
func TestLongKilled(t *testing.T) {
	needRoot(t)
	for _, victim := range []string{"sandbox", "parent"} {
		t.Run(victim, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "result")
			if victim == "sandbox" {
				ctx, cancel := context.WithCancelCause(t.Context())
				killed := errors.New("killed")
				go func() {
					defer cancel(killed)
					wrote(file)
				}()
				if err := sandbox.Run(ctx, orders{File: file, Hang: true}, os.Stderr, os.Stderr); !errors.Is(err, killed) {
					t.Errorf("it ends with %v", err)
				}
			} else {
				p, err := subprocess.Start("parent", orders{File: file, Hang: true})
				if err != nil {
					t.Fatal(err)
				}
				wrote(file)
				if err := p.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(file); err != nil {
				t.Fatal("it did nothing before it was killed")
			}
			lockertest.Eventually(t, "the programs of the sandbox end", func() bool { return !running(t, file) })
			nothingLeft(t)
		})
	}
}

// wrote waits until the file is there, for a minute at most.
func wrote(file string) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
	}
}

// running reports whether a process has the file in its arguments.
func running(t *testing.T, file string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), file) {
			return true
		}
	}
	return false
}

// nothingLeft checks that no mount, no network and no shared memory shows
// outside.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, name := range []string{sandbox.Dir, "/run/netns/left", "/sys/class/net/left", "/sys/class/net/sideswitch", memoryFile} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	segments, err := os.ReadFile("/proc/sysvipc/shm")
	if err == nil && slices.ContainsFunc(strings.Split(string(segments), "\n"), func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 0 && fields[0] == strconv.Itoa(memoryKey)
	}) {
		t.Error("a segment of shared memory is left")
	}
}
