package pgtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// A smallDisk is a file system of a server's own, which a test can fill. It is
// in memory and in a mount namespace of the server, so it ends with the server
// and with this process.
type smallDisk struct {
	megabytes int
	home      string   // the server's directory
	wal       bool     // the write-ahead log is on it
	namespace *os.File // of the mount; nil before the first start
	root      *os.Root // its top
}

// ErrNoMounts reports that this process may not mount a file system.
var ErrNoMounts = errors.New("pgtest: a small disk needs root, Linux, and the programs unshare, nsenter, mount and setpriv")

// WithSmallDisk gives the server a disk of so many megabytes. The write-ahead
// log is on it if wal is true. In any case SmallDisk is a directory on it, for a
// tablespace. Start returns ErrNoMounts where that is not possible.
func WithSmallDisk(megabytes int, wal bool) Option {
	return func(c *Cluster) { c.disk = &smallDisk{megabytes: megabytes, wal: wal} }
}

// SmallDisk returns the directory of WithSmallDisk that a tablespace may have.
func (c *Cluster) SmallDisk() string {
	return filepath.Join(c.disk.mount(), "tablespace")
}

// filler is the file that takes all room.
const filler = "filler"

// FillDisk takes all the room that is left on the disk of WithSmallDisk. The
// server needs to have started.
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

// MakeRoom gives back what FillDisk has taken, also while the server is down.
func (c *Cluster) MakeRoom() error { return c.disk.root.Remove(filler) }

// mount returns where the disk is mounted, for the server alone.
func (d *smallDisk) mount() string { return filepath.Join(d.home, "disk") }

// enter keeps the namespace of the server pid, for later starts.
func (d *smallDisk) enter(pid int) (err error) {
	if d.namespace != nil {
		return nil
	}
	if d.namespace, err = os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil {
		return err
	}
	d.root, err = os.OpenRoot(fmt.Sprintf("/proc/%d/root%s", pid, d.mount()))
	return err
}

// close lets the disk end with the server.
func (d *smallDisk) close() error {
	if d.namespace == nil {
		return nil
	}
	return errors.Join(d.root.Close(), d.namespace.Close())
}

// The scripts that start a server with a disk, as root. Their arguments are the
// program as $0, the size in megabytes, the user and the group, the mount, where
// the write-ahead log is or nothing, and then those of the program.
const (
	mountDisk = `set -e
mkdir -p "$4"
mount -t tmpfs -o "size=$1m,mode=0700,uid=$2,gid=$3" tmpfs "$4"
mkdir "$4/tablespace"
if [ -n "$5" ]; then
	cp -a "$5" "$4/wal"
	rm -rf "$5"
	ln -s "$4/wal" "$5"
fi
chown -hR "$2:$3" "$4"
` + becomeServer

	becomeServer = `echo $$ >&3
uid=$2 gid=$3
shift 5
exec 3>&-
exec setpriv --reuid="$uid" --regid="$gid" --init-groups "$0" "$@"
`
)
