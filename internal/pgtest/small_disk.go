package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A smallDisk is a file system of a server's own, which a test can fill. It is
// in memory and in a mount namespace of the server, so it ends with the server.
type smallDisk struct {
	megabytes int
	home      string   // the server's directory
	root      *os.Root // its top; nil before the start
}

// ErrNoMounts reports that this process may not mount a file system.
var ErrNoMounts = errors.New("pgtest: a small disk needs root, Linux, and the programs unshare, mount and setpriv")

// WithSmallDisk gives the server a disk of so many megabytes, on which SmallDisk
// is a directory for a tablespace. Such a server is started once. Start returns
// ErrNoMounts where a disk is not possible.
func WithSmallDisk(megabytes int) Option {
	return func(c *Cluster) { c.disk = &smallDisk{megabytes: megabytes} }
}

// SmallDisk returns the directory of WithSmallDisk that a tablespace may have.
func (c *Cluster) SmallDisk() string {
	return filepath.Join(c.disk.mount(), "tablespace")
}

// filler is the file that takes all room.
const filler = "filler"

// FillDisk fills the disk of WithSmallDisk.
func (c *Cluster) FillDisk() error {
	f, err := c.disk.root.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 1 << 20; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
	}
	return nil
}

// MakeRoom gives back what FillDisk has taken.
func (c *Cluster) MakeRoom() error { return c.disk.root.Remove(filler) }

// mount returns where the disk is mounted, for the server alone.
func (d *smallDisk) mount() string { return filepath.Join(d.home, "disk") }

// enter opens the disk in the namespace of the server pid.
func (d *smallDisk) enter(pid int) (err error) {
	d.root, err = os.OpenRoot(fmt.Sprintf("/proc/%d/root%s", pid, d.mount()))
	return err
}

// close lets the disk end with the server.
func (d *smallDisk) close() error {
	if d.root == nil {
		return nil
	}
	return d.root.Close()
}

// startOnDisk starts a server with a disk, as root. Its arguments are the program
// as $0, the size in megabytes, the user, the group and the mount, and then those
// of the program.
const startOnDisk = `set -e
mkdir -p "$4"
mount -t tmpfs -o "size=$1m,mode=0700,uid=$2,gid=$3" tmpfs "$4"
mkdir "$4/tablespace"
chown -hR "$2:$3" "$4"
echo $$ >&3
uid=$2 gid=$3
shift 4
exec 3>&-
exec setpriv --reuid="$uid" --regid="$gid" --init-groups "$0" "$@"
`
