//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pgtest

import (
	"errors"
	"os"
	"syscall"
)

// On these systems the package only compiles, so that the module's tests can be
// built and vetted. It starts no server: serverAccount, the first call, returns
// an error.
var errSystem = errors.New("pgtest: servers are started on Linux, macOS and BSD only")

const (
	sigCont = syscall.Signal(-1)
	sigStop = syscall.Signal(-2)

	sigReload = syscall.Signal(-3)
)

type account struct{ Uid, Gid uint32 }

func serverAccount() (*account, error) { return nil, errSystem }

func ownSession(*account) *syscall.SysProcAttr { return nil }

func kill(int, syscall.Signal) error { return errSystem }

func reap(int) (status syscall.WaitStatus, ended bool) { return status, true }

func mayWrite(string) error { return errSystem }

func lock(*os.File) error { return errSystem }
