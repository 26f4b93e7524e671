// Package starve takes processor time away from all other processes, by a
// process that does nothing but count. It is the running program once more,
// whose main calls [Main] first.
package starve

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// role is that of a process that counts.
const role = "starve"

// Main does not return in a process that Start has started.
func Main() {
	subprocess.MainReader(role, func(stdin io.Reader, n int) error {
		runtime.GOMAXPROCS(n)
		for range n {
			go count()
		}
		_, err := io.Copy(io.Discard, stdin) // ends with the parent
		return err
	})
}

func count() {
	for {
		continue
	}
}

// ErrIdle is matched by the error of a stop whose process got next to no
// processor time, so that no other process was starved.
var ErrIdle = errors.New("starve: a process that should take the processor got less than a quarter of one")

// Start starts a process that keeps n processors busy, until stop is called.
func Start(n int) (stop func() error, err error) {
	process, err := subprocess.Start(role, n)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	return func() error {
		lasted := time.Since(begin)
		process.Ask()
		if err := process.Wait(); err != nil {
			return err
		}
		if used := process.CPU(); used < lasted/4 {
			return fmt.Errorf("%w: %v in %v", ErrIdle, used, lasted)
		}
		return nil
	}, nil
}
