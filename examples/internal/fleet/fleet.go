// Package fleet runs a program of the examples as processes. It starts, kills,
// freezes and stops them, and reads what they print:
//
//	f := &fleet.Fleet{Program: program, Env: []string{"DATABASE_URL=" + url}}
//	defer f.Stop()
//	i, err := f.Start("-http", "127.0.0.1:0")
//	…
//	response, err := http.Get("http://" + i.Address("http") + "/health")
//	…
//	err = i.Kill()
//
// A program prints one line when it works, with its addresses if it has any:
//
//	ready http=127.0.0.1:8080 grpc=127.0.0.1:9090
//
// It stops in order when it gets SIGTERM. On Linux and FreeBSD no process
// outlives the one that has started it.
package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// A Fleet is the running instances of a program. Set the fields before the first
// Start. Its methods are safe for concurrent use.
type Fleet struct {
	Program Program
	Env     []string                       // added to this process's environment
	Line    func(i *Instance, line string) // called for each line that an instance prints later; nil: none
	Log     io.Writer                      // gets the standard error of all instances; nil: os.Stderr

	mu      sync.Mutex // protects what follows
	running []*Instance
	started int
}

// An Instance is one process of the program.
type Instance struct {
	*subprocess.Process

	Number int // 1 for the first of its Fleet

	fleet     *Fleet
	addresses map[string]string
	read      chan struct{} // closed when it has ended, and Line was called for all it printed
}

// timeout bounds the start and the end of an instance. Only a hang takes as long.
const timeout = time.Minute

// Start starts an instance and waits until it is ready. The error says if it ends
// before. Log has the reason then.
func (f *Fleet) Start(args ...string) (*Instance, error) {
	c := f.Program.command(args...)
	c.Env = append(c.Env, f.Env...)
	if c.Stderr = f.Log; f.Log == nil {
		c.Stderr = os.Stderr
	}
	p, err := subprocess.StartCommand(c)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.started++
	i := &Instance{Process: p, Number: f.started, fleet: f, addresses: map[string]string{}, read: make(chan struct{})}
	f.running = append(f.running, i)
	f.mu.Unlock()
	ready := make(chan bool, 1)
	go i.follow(ready)
	select {
	case ok := <-ready:
		if ok {
			return i, nil
		}
		err = errors.New("an instance ended before it was ready")
	case <-time.After(timeout):
		err = errors.New("an instance does not say that it is ready")
	}
	return nil, errors.Join(err, i.Kill())
}

// follow reads what the instance prints, until it ends.
func (i *Instance) follow(ready chan<- bool) {
	defer close(i.read)
	began := false
	for lines := bufio.NewScanner(i.Stdout); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case began && i.fleet.Line != nil:
			i.fleet.Line(i, lines.Text())
		case !began && len(words) > 0 && words[0] == "ready":
			for _, word := range words[1:] {
				name, address, _ := strings.Cut(word, "=")
				i.addresses[name] = address
			}
			began = true
			ready <- true
		}
	}
	if !began {
		ready <- false
	}
}

// Address returns where the instance serves, by the name that it printed.
func (i *Instance) Address(name string) string { return i.addresses[name] }

// Kill ends the instance as kill -9 does. It returns when the process is gone and
// Line was called for all that it printed.
func (i *Instance) Kill() error {
	err := i.Process.Kill()
	<-i.read
	i.fleet.forget(i)
	return err
}

// Stop asks the instance to stop, and waits for its end. The error is that of the
// process, or says that it was killed because it did not end within a minute.
func (i *Instance) Stop() error {
	i.ask()
	return i.end()
}

// end waits for the end of an instance that was asked to stop.
func (i *Instance) end() error {
	defer i.fleet.forget(i)
	select {
	case <-i.Ended():
	case <-time.After(timeout):
		return errors.Join(fmt.Errorf("instance %d does not stop", i.Number), i.Kill())
	}
	<-i.read
	if err := i.Wait(); err != nil {
		return fmt.Errorf("instance %d: %w", i.Number, err)
	}
	return nil
}

// ask asks the instance to stop, and returns at once. A frozen one goes on for
// that. A system without SIGTERM ends it. A second signal would end a program that
// stops.
func (i *Instance) ask() {
	_ = i.Thaw()
	if err := i.Signal(syscall.SIGTERM); err != nil {
		_ = i.Signal(os.Kill) // an error says that it has ended
	}
}

// forget removes an instance that has ended.
func (f *Fleet) forget(i *Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = slices.DeleteFunc(f.running, func(other *Instance) bool { return other == i })
}

// Running returns the instances that were neither killed nor stopped.
func (f *Fleet) Running() []*Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.running)
}

// Stop stops all instances. Called again it does nothing.
func (f *Fleet) Stop() (err error) {
	all := f.Running()
	for _, i := range all { // all at once
		i.ask()
	}
	for _, i := range all {
		err = errors.Join(err, i.end())
	}
	return err
}
