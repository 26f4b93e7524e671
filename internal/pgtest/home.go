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

// A home is the directory of one server with a watchdog: a child process that
// stops the server and removes the directory when this process ends, even by
// kill -9.
type home struct {
	dir      string
	account  *account // owner of dir, and who the server runs as; nil: ourselves
	env      []string // of its programs, besides serverEnv
	lifeline *os.File // the pipe to the watchdog, which acts when it is closed
	watchdog *process
}

// newHome makes a home. The watchdog is there before the directory is, so that
// there is no moment at which a kill would leave one behind.
func newHome() (*home, error) {
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	name := "latchkey-pg-" + strings.ToLower(rand.Text()[:10])
	h := &home{dir: filepath.Join(tempDir(), name), account: account}
	if err := h.startWatchdog(); err != nil {
		return nil, err
	}
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		// Whatever is there is not ours: the watchdog must not remove it.
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
	// A session of its own: Ctrl-C ends the tests, not the watchdog. No output
	// of ours, since `go test` waits until everyone has closed it.
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

// tellPidAndExec tells the watchdog its process id and becomes the program: so
// there is no moment at which the watchdog does not know a running server.
const tellPidAndExec = `echo $$ >&3 && exec 3>&- && exec "$0" "$@"`

// start starts a program under the server's account; its output goes to the end
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
	return startProcess(append([]string{"/bin/sh", "-c", tellPidAndExec, program}, args...), &os.ProcAttr{
		Dir:   h.dir,
		Env:   append(serverEnv(), h.env...),
		Files: []*os.File{null, log, log, h.lifeline},
		Sys:   ownSession(h.account),
	})
}

// reaped tells the watchdog that the process started last is gone for good, and
// its id free for others.
func (h *home) reaped() error {
	_, err := h.lifeline.WriteString("0\n")
	return err
}

// run runs a program to its end, as start does.
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

// remove ends the watchdog, and with it what is left of the server and its files.
func (h *home) remove() error {
	err := h.lifeline.Close()
	err = errors.Join(err, h.watchdog.wait(stopTimeout))
	return errors.Join(err, os.RemoveAll(h.dir))
}

func (h *home) log() string { return filepath.Join(h.dir, "server.log") }

func (h *home) logSize() int64 {
	info, err := os.Stat(h.log())
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince is what the log has gained since it had the given size.
func (h *home) logSince(size int64) string {
	b, err := os.ReadFile(h.log())
	if err != nil || int64(len(b)) < size {
		return ""
	}
	return string(b[size:])
}

// logTail is the end of logSince, to put behind an error's text.
func (h *home) logTail(size int64) string {
	lines := strings.Split(strings.TrimSpace(h.logSince(size)), "\n")
	lines = lines[max(0, len(lines)-20):]
	return "; its log ends:\n\t" + strings.Join(lines, "\n\t")
}
