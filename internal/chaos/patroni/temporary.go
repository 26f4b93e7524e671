//go:build linux

package main

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A temporary directory is removed when this process ends, even by kill -9,
// unless it was kept.
type temporary struct {
	dir      string
	watchdog *exec.Cmd
	lifeline io.WriteCloser // the watchdog acts when it is closed
}

// watch removes $0 when its input ends without a line. It waits a moment for the
// processes that were killed with this one, and may be at work in there.
const watch = `read keep || { rm -rf "$0" || { sleep 1; rm -rf "$0"; }; }`

// newTemporary makes one. The watchdog starts before the directory is made.
func newTemporary() (*temporary, error) {
	t := &temporary{dir: filepath.Join(os.TempDir(), "latchkey-failovers-"+rand.Text()[:10])}
	t.watchdog = exec.Command("/bin/sh", "-c", watch, t.dir)
	t.watchdog.Dir = "/"
	t.watchdog.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C does not end it
	var err error
	if t.lifeline, err = t.watchdog.StdinPipe(); err != nil {
		return nil, err
	}
	if err := t.watchdog.Start(); err != nil {
		return nil, err
	}
	return t, os.Mkdir(t.dir, 0o700)
}

// keep leaves the directory where it is.
func (t *temporary) keep() error {
	_, err := io.WriteString(t.lifeline, "keep\n")
	return errors.Join(err, t.remove())
}

// remove removes the directory, unless it was kept.
func (t *temporary) remove() error { return errors.Join(t.lifeline.Close(), t.watchdog.Wait()) }
