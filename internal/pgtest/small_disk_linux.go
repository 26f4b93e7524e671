package pgtest

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// available reports whether this process may mount a disk.
func (*smallDisk) available() bool {
	if _, err := exec.LookPath("setpriv"); err != nil {
		return false
	}
	return os.Geteuid() == 0 && exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp").Run() == nil //nolint:noctx // at once
}

// launch changes how home h starts a program: in a namespace of its own, on the
// disk, which it mounts.
func (d *smallDisk) launch(h *home, program string, args []string, attr *os.ProcAttr) (argv []string) {
	attr.Sys = ownSession(nil)
	attr.Sys.Unshareflags = syscall.CLONE_NEWNS
	user, group := strconv.Itoa(int(h.account.Uid)), strconv.Itoa(int(h.account.Gid))
	return append([]string{"/bin/sh", "-c", startOnDisk, program, strconv.Itoa(d.megabytes), user, group, d.mount()}, args...)
}
