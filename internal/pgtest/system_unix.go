//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pgtest

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// This file and system_other.go hold what the package needs of the operating
// system.

// Signals that other systems lack.
const (
	sigCont = syscall.SIGCONT
	sigStop = syscall.SIGSTOP

	sigReload = syscall.SIGUSR2 // of HAProxy
)

// An account is the user and group of a process.
type account = syscall.Credential

// serverAccount returns the account that servers run under. It is nil, our own,
// unless that is root: PostgreSQL and PgBouncer do not run as root.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &account{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("pgtest: PostgreSQL does not run as root, and there is no user postgres or nobody")
}

// ownSession starts a process in a session of its own, under account a, or
// under our account if a is nil.
func ownSession(a *account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a, Setsid: true}
}

// kill sends sig to a process.
func kill(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// reap reports whether the child pid has ended, and with which status. A child
// that does not exist has ended too.
func reap(pid int) (status syscall.WaitStatus, ended bool) {
	for {
		child, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case child == 0 && err == nil:
			return status, false
		default:
			return status, true
		}
	}
}

// mayWrite returns an error if we may not write to dir.
func mayWrite(dir string) error { return syscall.Access(dir, 2 /* W_OK */) }

// lock waits for an exclusive lock on f. The kernel drops the lock if the
// process dies.
func lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
