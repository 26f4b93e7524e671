// Package subprocess starts the running program again, as another process with
// a role. Tests and demonstrations with several processes use it:
//
//	func TestMain(m *testing.M) {
//		subprocess.Main("holder", hold) // hold is func(context.Context, orders) error
//		os.Exit(m.Run())
//	}
//
//	p, err := subprocess.Start("holder", orders{DSN: dsn})
//	line, err := p.ReadLine() // what hold has printed
//	err = p.Kill()
//
// A process that Start has started ends when its parent ends, however that ends.
package subprocess

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// A Process is another process of this program, as its parent sees it.
//
// Invariant: ended is closed exactly when the system has reported the end of
// the process; err is written before that and never after.
type Process struct {
	// Stdin is the standard input of the process. The process is asked to end
	// when Stdin is closed.
	Stdin io.WriteCloser

	// Stdout is what the process prints. It can be read after the end of the
	// process, too. A process that prints a lot blocks unless its parent reads.
	Stdout *bufio.Reader

	command *exec.Cmd
	ended   chan struct{}
	err     error // how it has ended; valid once ended is closed
}

// Start starts this program again with a role, as [Command] describes it. Its
// errors are those of Command and of starting a process.
func Start(role string, orders any, env ...string) (*Process, error) {
	c, err := Command(role, orders, env...)
	if err != nil {
		return nil, err
	}
	return StartCommand(c)
}

// Command returns the command that starts this program again with a role. Its
// orders are encoded as JSON, and travel in the environment, where other users
// of the machine do not see them. Elements of env have the form "NAME=value" and
// are added to the environment of this process.
//
// Command fails unless this process has called [Main], or [MainReader], with the
// same role before.
func Command(role string, orders any, env ...string) (*exec.Cmd, error) {
	if _, ok := known.Load(role); !ok {
		return nil, errors.New("subprocess: a command needs a role with which Main was called before: " + role)
	}
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program) //nolint:gosec,noctx // this very program, which Kill and Stop end
	c.Env = append(append(os.Environ(), env...), roleVariable+"="+role, ordersVariable+"="+string(text))
	c.Stderr = os.Stderr
	return c, nil
}

// StartCommand starts another program, which need not call [Main]. c has neither
// Stdin nor Stdout. On Linux and FreeBSD the process ends with its parent. On
// other systems it does if it reads its input to the end.
//
// The pipe of its output is not one of package exec, whose Wait would close it
// before all has been read.
func StartCommand(c *exec.Cmd) (*Process, error) {
	c.SysProcAttr = endWithParent()
	stdin, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	defer writer.Close()
	c.Stdout = writer
	p := &Process{Stdin: stdin, Stdout: bufio.NewReader(reader), command: c, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		p.err = run(c, started)
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return p, nil
}

// run starts c, tells started, and waits for the end of c. All of it is on one
// thread, which no other goroutine has meanwhile. Linux takes the end of the
// thread that starts a process for the end of its parent. A thread ends with any
// goroutine that has locked it.
func run(c *exec.Cmd, started chan<- error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.Start()
	started <- err
	if err != nil {
		return err
	}
	return c.Wait()
}

// ReadLine returns the next line that the process prints, without its end. The
// error is io.EOF if the process has ended and printed no more.
func (p *Process) ReadLine() (string, error) {
	line, err := p.Stdout.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the end of the process. The error is nil if the process
// succeeded, and otherwise an [exec.ExitError]. A process that prints more than
// its parent reads does not end: read Stdout to its end before Wait.
func (p *Process) Wait() error {
	<-p.ended
	return p.err
}

// Ask asks the process to end and returns at once. In the process the context
// of [Main] ends.
func (p *Process) Ask() {
	_ = p.Stdin.Close() // an error says that it is closed already
}

// ErrKilled is matched by the error of Stop if the process did not end in time.
var ErrKilled = errors.New("subprocess: a process did not end when asked, and was killed")

// Stop asks the process to end, waits for its end, and kills it after timeout.
// The error is that of Wait, or ErrKilled.
func (p *Process) Stop(timeout time.Duration) error {
	p.Ask()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(timeout):
		return errors.Join(ErrKilled, p.Kill())
	}
}

// Kill ends the process at once, as kill -9 does, and waits for its end. It
// does nothing if the process has ended.
func (p *Process) Kill() error {
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	p.Ask()
	return nil
}

// Signal sends a signal to the process. On Windows only os.Kill is possible.
func (p *Process) Signal(s os.Signal) error { return p.command.Process.Signal(s) }
