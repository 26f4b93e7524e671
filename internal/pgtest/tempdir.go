package pgtest

import (
	"os"
	"path/filepath"
)

// maxSocketDir leaves room for "/.s.PGSQL.12345" in the 104 bytes that a unix
// socket's path may have on macOS (108 on Linux).
const maxSocketDir = 104 - 1 - len("/.s.PGSQL.12345.lock")

// memoryDir is Linux's file system in memory. With ext4 a machine that starts
// and removes clusters in quick succession needs a second and more for each:
// ext4 walks past every file that was deleted in the last minutes to make a new one.
const memoryDir = "/dev/shm"

// enoughMemory is what has to be free there: a cluster needs 40 MB, and a
// benchmark may write 1 GB of WAL. Containers have 64 MB as a rule.
const enoughMemory = 4 << 30

// tempDir is where homes are made: TMPDIR if it is set; else in memory, if there
// is plenty; else where temporary files belong. It is /tmp in place of a
// directory in which a socket would have too long a path, or which the server's
// account could not reach.
func tempDir() string {
	dir := os.TempDir()
	if os.Getenv("TMPDIR") == "" && freeBytes(memoryDir) >= enoughMemory {
		dir = memoryDir
	}
	if len(dir)+len("/latchkey-pg-1234567890") > maxSocketDir || os.Geteuid() == 0 && !openToAll(dir) {
		return "/tmp"
	}
	return dir
}

// openToAll reports whether every account can reach the files in dir.
func openToAll(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
