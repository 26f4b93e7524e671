package pgtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// available reports whether this process may mount a disk.
func (*smallDisk) available() bool {
	for _, program := range []string{"nsenter", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return os.Geteuid() == 0 && exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp").Run() == nil //nolint:noctx // at once
}

// launch changes how home h starts a program: on the disk, which the first
// launch mounts.
func (d *smallDisk) launch(h *home, program string, args []string, attr *os.ProcAttr) (argv []string) {
	wal := ""
	if d.wal {
		wal = filepath.Join(h.dir, "data", "pg_wal")
	}
	order := append([]string{program, strconv.Itoa(d.megabytes), strconv.Itoa(int(h.account.Uid)), strconv.Itoa(int(h.account.Gid)), d.mount(), wal}, args...)
	attr.Sys = ownSession(nil)
	if d.namespace == nil {
		attr.Sys.Unshareflags = syscall.CLONE_NEWNS
		return append([]string{"/bin/sh", "-c", mountDisk}, order...)
	}
	attr.Files = append(attr.Files, d.namespace)
	return append([]string{"/bin/sh", "-c", `exec nsenter --mount=/proc/self/fd/4 /bin/sh -c 'exec 4<&-
'"$0" "$@"`, becomeServer}, order...)
}
