package pgtest

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed watchdog.sh
var watchdogScript string

// A home is the directory of one server with a watchdog. The watchdog is a
// child process that stops the server and removes the directory when this
// process ends, even by kill -9.
type home struct {
	dir      string
	account  *account   // owner of dir, and who the server runs as; nil: ourselves
	env      []string   // of its programs, besides serverEnv
	disk     *smallDisk // of the server; nil: none
	lifeline *os.File   // the pipe to the watchdog, which acts when it is closed
	watchdog *process
}

// newHome makes a home in the directory parent. The watchdog starts before the
// home is made, so a kill at any moment leaves no directory behind.
func newHome(parent string) (*home, error) {
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	name := "latchkey-pg-" + strings.ToLower(rand.Text()[:10])
	h := &home{dir: filepath.Join(parent, name), account: account}
	if err := h.startWatchdog(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		// The directory that exists is not ours: the watchdog must not remove
		// it.
		return nil, errors.Join(err, h.watchdog.signal(syscall.SIGKILL), h.watchdog.wait(stopTimeout), h.lifeline.Close())
	}
	if err := h.own(h.dir); err != nil {
		return nil, errors.Join(err, h.remove())
	}
	return h, nil
}

// own gives path to the server's account.
func (h *home) own(path string) error {
	if h.account == nil {
		return nil
	}
	return os.Lchown(path, int(h.account.Uid), int(h.account.Gid))
}

// write writes a file of the home.
func (h *home) write(name string, content []byte) error {
	path := filepath.Join(h.dir, name)
	return errors.Join(os.WriteFile(path, content, 0o600), h.own(path))
}

func (h *home) startWatchdog() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	defer null.Close()
	// The watchdog has a session of its own: Ctrl-C ends the tests, but not the
	// watchdog. It does not inherit our output, because `go test` waits until
	// every process has closed that.
	h.watchdog, err = startProcess([]string{"/bin/sh", "-c", watchdogScript, "watchdog", h.dir}, &os.ProcAttr{
		Dir:   "/",
		Files: []*os.File{r, null, null},
		Sys:   ownSession(nil),
	})
	if err != nil {
		return errors.Join(err, w.Close())
	}
	h.lifeline = w
	return nil
}

// tellPidAndExec reports its process id to the watchdog and then becomes the
// program. The watchdog therefore knows every running server.
const tellPidAndExec = `echo $$ >&3 && exec 3>&- && exec "$0" "$@"`

// start starts a program under the server's account. Its output goes to the end
// of the home's log.
func (h *home) start(program string, args ...string) (*process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(h.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	attr := &os.ProcAttr{
		Dir:   h.dir,
		Env:   append(serverEnv(), h.env...),
		Files: []*os.File{null, log, log, h.lifeline},
		Sys:   ownSession(h.account),
	}
	argv := append([]string{"/bin/sh", "-c", tellPidAndExec, program}, args...)
	if h.disk != nil {
		argv = h.disk.launch(h, program, args, attr)
	}
	return startProcess(argv, attr)
}

// reaped reports to the watchdog that the process started last has been reaped,
// so that its id may belong to another process.
func (h *home) reaped() error {
	_, err := h.lifeline.WriteString("0\n")
	return err
}

// run starts a program as start does, and waits for its end.
func (h *home) run(d time.Duration, program string, args ...string) error {
	from := h.logSize()
	p, err := h.start(program, args...)
	if err != nil {
		return err
	}
	err = p.wait(d)
	if err != nil {
		err = errors.Join(err, p.signal(syscall.SIGKILL), p.wait(d))
	} else if p.status.ExitStatus() != 0 {
		err = errors.New("pgtest: it failed")
	}
	if err := errors.Join(err, h.reaped()); err != nil {
		return fmt.Errorf("%s: %w%s", filepath.Base(program), err, h.logTail(from))
	}
	return nil
}

// remove ends the watchdog, which ends the server, if it is running, and
// removes the home's files.
func (h *home) remove() error {
	err := h.lifeline.Close()
	if h.disk != nil {
		err = errors.Join(err, h.disk.close())
	}
	err = errors.Join(err, h.watchdog.wait(stopTimeout))
	return errors.Join(err, os.RemoveAll(h.dir))
}

// logName is the name of the log in a home.
const logName = "server.log"

func (h *home) log() string { return filepath.Join(h.dir, logName) }

func (h *home) logSize() int64 {
	info, err := os.Stat(h.log())
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince returns what was added to the log since it had the given size.
func (h *home) logSince(size int64) string {
	b, err := os.ReadFile(h.log())
	if err != nil || int64(len(b)) < size {
		return ""
	}
	return string(b[size:])
}

// logTail returns the end of logSince, to append to an error's text.
func (h *home) logTail(size int64) string {
	lines := strings.Split(strings.TrimSpace(h.logSince(size)), "\n")
	lines = lines[max(0, len(lines)-20):]
	return "; its log ends:\n\t" + strings.Join(lines, "\n\t")
}
