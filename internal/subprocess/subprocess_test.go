package subprocess_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// greeting is the orders of the roles below.
type greeting struct{ Name string }

func TestMain(m *testing.M) {
	subprocess.Main("greeter", greet)
	subprocess.Main("failure", func(context.Context, greeting) error { return errors.New("on purpose") })
	subprocess.Main("crash", func(context.Context, greeting) error { subprocess.Crash(); return nil })
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
	if p.CPU() <= 0 {
		t.Error("it used no processor time")
	}
	if err := p.Kill(); err != nil {
		t.Errorf("killed when it has ended: %v", err)
	}
}

func TestConversation(t *testing.T) {
	p := start(t, "echo", "")
	for _, line := range []string{"one", "two"} {
		if _, err := fmt.Fprintln(p.Stdin, line); err != nil {
			t.Fatal(err)
		}
		wantLine(t, p, line)
	}
	p.Ask()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestEnds(t *testing.T) {
	tests := []struct {
		role string
		want string // in the error
	}{
		{"failure", "exit status 1"},
		{"crash", "killed"},
	}
	for _, tt := range tests {
		t.Run(tt.role, func(t *testing.T) {
			if tt.role == "crash" && !canFreeze {
				t.Skip("a process that is killed has an exit status here")
			}
			p := start(t, tt.role, "")
			<-p.Ended()
			var exit *exec.ExitError
			if err := p.Wait(); !errors.As(err, &exit) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it ends with %v, want %s", err, tt.want)
			}
		})
	}
}

// Without a Main for its role, the process would run all tests once more.
func TestRoleWithoutMain(t *testing.T) {
	p, err := subprocess.Start("nobody", greeting{})
	if err == nil {
		_ = p.Kill()
		t.Error("a process was started with a role that the program does not have")
	}
}

// Processes that print more than a pipe holds end when their output is read.
func TestLongOutput(t *testing.T) {
	const length = 1 << 20
	var ps []*subprocess.Process
	for range 2 {
		ps = append(ps, start(t, "echo", ""))
	}
	for _, p := range ps {
		go func() {
			_, _ = io.WriteString(p.Stdin, strings.Repeat("x", length)+"\n")
			p.Ask()
		}()
	}
	for _, p := range ps {
		if line, err := p.ReadLine(); err != nil || len(line) != length {
			t.Errorf("it prints %d bytes, %v, want %d", len(line), err, length)
		}
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestOrdersThatAreNotJSON(t *testing.T) {
	if _, err := subprocess.Start("greeter", make(chan int)); err == nil {
		t.Error("a channel is no order")
	}
}

// A frozen process does not end when asked, and goes on when it thaws.
func TestFreeze(t *testing.T) {
	if !canFreeze {
		t.Skip("this system does not freeze processes")
	}
	t.Run("thawed", func(t *testing.T) {
		p := start(t, "echo", "")
		if err := p.Freeze(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p.Stdin, "word\n"); err != nil {
			t.Fatal(err)
		}
		if err := p.Thaw(); err != nil {
			t.Fatal(err)
		}
		wantLine(t, p, "word")
	})
	t.Run("stopped", func(t *testing.T) {
		p := start(t, "greeter", "Ann")
		if err := p.Freeze(); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(time.Millisecond); !errors.Is(err, subprocess.ErrKilled) {
			t.Errorf("it ends with %v, want ErrKilled", err)
		}
	})
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
