package pgtest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed clock/clock.c
var clockSource string

var errNoClock = errors.New("pgtest: a server with a clock of its own needs Linux and a C compiler (cc): run `make deps`")

// WithClock gives the server a wall clock of its own, which [Cluster.StepClock]
// steps. It needs Linux and a C compiler.
func WithClock() Option { return func(c *Cluster) { c.ownClock = true } }

// StepClock steps the wall clock of a server started WithClock by d, forward or
// back, as an administrator or a time service does. Its processes see the new
// time when they next read the clock. So does the server when it is started
// again.
func (c *Cluster) StepClock(d time.Duration) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	switch {
	case !c.ownClock:
		return errors.New("pgtest: the server was not started WithClock")
	case c.closed:
		return errClosed
	}
	file, err := os.OpenFile(clockFile(c.home), os.O_WRONLY, 0) // not truncated: it is mapped
	if err != nil {
		return err
	}
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], uint64(c.stepped+d))
	_, err = file.WriteAt(word[:], 0)
	if err = errors.Join(err, file.Close()); err == nil {
		c.stepped += d
	}
	return err
}

// clockFile holds the offset of a server's clock.
func clockFile(h *home) string { return filepath.Join(h.dir, "clock") }

// makeClock makes a server's clock. All programs that h starts from then on have
// it.
func makeClock(h *home) error {
	cc, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		return errNoClock
	}
	file := clockFile(h)
	source, library := file+".c", file+".so"
	if err := os.WriteFile(source, []byte(clockSource), 0o600); err != nil {
		return err
	}
	if output, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", library, source).CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: cc: %w\n%s", err, output)
	}
	h.env = append(h.env, "LATCHKEY_PGTEST_CLOCK="+file, "LD_PRELOAD="+library)
	return errors.Join(h.write(filepath.Base(file), make([]byte, 8)), h.own(library))
}
