package subprocess_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// canFreeze reports whether this system stops processes.
const canFreeze = runtime.GOOS != "windows"

// greeting is the orders of the roles below.
type greeting struct{ Name string }

func TestMain(m *testing.M) {
	subprocess.Main("greeter", greet)
	subprocess.Main("failure", func(context.Context, greeting) error { return errors.New("on purpose") })
	subprocess.Main("parent", beParent)
	subprocess.MainReader("echo", echo)
	os.Exit(m.Run())
}

// greet prints a line and waits to be asked to end.
func greet(ctx context.Context, g greeting) error {
	fmt.Println("hello", g.Name, os.Getenv("SUBPROCESS_TEST"))
	<-ctx.Done()
	fmt.Println("bye")
	return nil
}

// echo prints what it reads.
func echo(stdin io.Reader, _ greeting) error {
	_, err := io.Copy(os.Stdout, stdin)
	return err
}

// beParent starts a greeter, frozen if the name says so, and waits to be killed.
func beParent(_ context.Context, g greeting) error {
	p, err := subprocess.Start("greeter", g)
	if err != nil {
		return err
	}
	if _, err := p.ReadLine(); err != nil {
		return err
	}
	if g.Name == "frozen" {
		if err := p.Freeze(); err != nil {
			return err
		}
	}
	fmt.Println(p.PID())
	select {}
}

// start starts a process for the length of the test.
func start(t *testing.T, role, name string, env ...string) *subprocess.Process {
	t.Helper()
	p, err := subprocess.Start(role, greeting{name}, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func wantLine(t *testing.T, p *subprocess.Process, want string) {
	t.Helper()
	if line, err := p.ReadLine(); err != nil || line != want {
		t.Fatalf("it prints %q, %v, want %q", line, err, want)
	}
}

func TestOrders(t *testing.T) {
	p := start(t, "greeter", "Ann & Ben", "SUBPROCESS_TEST=set")
	wantLine(t, p, "hello Ann & Ben set")
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("asked to end, it ends with %v", err)
	}
	wantLine(t, p, "bye") // what was printed can be read afterwards
	if line, err := p.ReadLine(); err != io.EOF {
		t.Errorf("then it prints %q, %v", line, err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("killed when it has ended: %v", err)
	}
}

// A failure is an exit status, and what cannot be started is an error.
func TestFails(t *testing.T) {
	p := start(t, "failure", "")
	<-p.Ended()
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("it ends with %v, want exit status 1", err)
	}
	// Without a Main for its role, the process would run all tests once more.
	for role, orders := range map[string]any{"nobody": greeting{}, "greeter": make(chan int)} {
		if p, err := subprocess.Start(role, orders); err == nil {
			_ = p.Kill()
			t.Errorf("a process was started as %s with %v", role, orders)
		}
	}
}

// A process gets what its parent writes, and prints more than a pipe holds.
func TestConversation(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	p := start(t, "echo", "")
	go func() {
		_, _ = io.WriteString(p.Stdin, "one\n"+long+"\n")
		p.Ask()
	}()
	wantLine(t, p, "one")
	if line, err := p.ReadLine(); err != nil || line != long {
		t.Errorf("it prints %d bytes, %v, want %d", len(line), err, len(long))
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// A frozen process does not end when asked, and goes on when it thaws.
func TestFreeze(t *testing.T) {
	if !canFreeze {
		t.Skip("this system does not freeze processes")
	}
	p, stopped := start(t, "echo", ""), start(t, "greeter", "Ann")
	for _, p := range []*subprocess.Process{p, stopped} {
		if err := p.Freeze(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(p.Stdin, "word\n"); err != nil {
		t.Fatal(err)
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	wantLine(t, p, "word")
	if err := stopped.Stop(time.Millisecond); !errors.Is(err, subprocess.ErrKilled) {
		t.Errorf("it ends with %v, want ErrKilled", err)
	}
}

// A process ends with its parent, also if the process is frozen.
func TestParentIsKilled(t *testing.T) {
	for _, state := range []string{"running", "frozen"} {
		t.Run(state, func(t *testing.T) {
			if state == "frozen" && !canFreeze {
				t.Skip("this system does not freeze processes")
			}
			// The grandchild's standard error is this pipe: it ends with the
			// last process that has it.
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			stderr := os.Stderr
			os.Stderr = writer
			parent := start(t, "parent", state)
			os.Stderr = stderr
			if err := writer.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := parent.ReadLine(); err != nil {
				t.Fatal(err)
			}
			if err := parent.Kill(); err != nil {
				t.Fatal(err)
			}
			if rest, err := bufio.NewReader(reader).ReadString('\n'); err != io.EOF {
				t.Errorf("standard error: %q, %v", rest, err)
			}
		})
	}
}
