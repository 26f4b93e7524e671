//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/lockertest"
)

type orders struct{ File string } // to write to

func TestMain(m *testing.M) {
	sandbox.Main(inside)
	os.Exit(m.Run())
}

// inside makes a network, and has a host in it write to the file whom it
// reaches. It leaves a program behind, and waits to be killed.
func inside(ctx context.Context, o orders) error {
	hosts, err := network.New("left", "right", "third")
	if err != nil {
		return err
	}
	left, right, third := hosts[0], hosts[1], hosts[2]
	var lines []string
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"whole", func() error { return nil }},
		{"cut", func() error { return network.Cut(left) }},
		{"aside", func() error { return network.Aside(left, right) }},
		{"mended", func() error { return network.Mend(left, right) }},
	} {
		if err := step.do(); err != nil {
			return err
		}
		for _, h := range []network.Host{right, third} {
			result := "reaches"
			if ping(left, h) != nil {
				result = "misses"
			}
			lines = append(lines, step.name+": left "+result+" "+h.Name)
		}
	}
	err = errors.Join(os.WriteFile(filepath.Join(sandbox.Dir, "private"), nil, 0o600), os.WriteFile(memoryFile, nil, 0o600),
		left.Command(nil, "tail", "-f", o.File).Start(), os.WriteFile(o.File, []byte(strings.Join(lines, "\n")), 0o600))
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// memoryFile is left in shared memory, as a killed PostgreSQL does.
const memoryFile = "/dev/shm/latchkey-sandbox"

// ping connects to a port that refuses, with the tools of bash. A host that is
// cut off does not answer at all: the five seconds are for a busy machine.
func ping(from, to network.Host) error {
	return from.Command(nil, "timeout", "5", "bash", "-c", "echo > /dev/tcp/"+to.IP+"/9 || [ $? = 1 ]").Run()
}

// A network does what it is told, and nothing outlives a sandbox that is killed.
func TestLongSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	if out, err := exec.Command("unshare", "--pid", "--mount", "--net", "--fork", "ip", "link", "add", "latchkey0", "type", "bridge").CombinedOutput(); err != nil {
		t.Skipf("this machine does not allow namespaces: %v %s", err, out)
	}
	file := filepath.Join(t.TempDir(), "result")
	want := `whole: left reaches right
whole: left reaches third
cut: left misses right
cut: left misses third
aside: left reaches right
aside: left misses third
mended: left reaches right
mended: left reaches third`
	ctx, cancel := context.WithCancelCause(t.Context())
	killed, ended := errors.New("killed"), make(chan error, 1)
	go func() {
		_, err := sandbox.Run(ctx, orders{file})
		ended <- err
	}()
	var got []byte
	for deadline := time.Now().Add(2 * time.Minute); len(got) < len(want) && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got, _ = os.ReadFile(file)
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	cancel(killed)
	if err := <-ended; !errors.Is(err, killed) {
		t.Errorf("it ends with %v", err)
	}
	lockertest.Eventually(t, "the programs of the sandbox end", func() bool { return !running(t, file) })
	for _, name := range []string{sandbox.Dir, "/run/netns/left", "/sys/class/net/left", "/sys/class/net/sideswitch", memoryFile} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s is left", name)
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
