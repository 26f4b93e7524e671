package pgtest

import (
	"os"
	"path/filepath"
)

// maxSocketDir leaves room for "/.s.PGSQL.12345" in the 104 bytes that the path
// of a unix socket may have on macOS (108 on Linux).
const maxSocketDir = 104 - 1 - len("/.s.PGSQL.12345.lock")

// memoryDir is Linux's file system in memory. On ext4 a machine that starts and
// removes many clusters needs a second and more for each. To make a file, ext4
// walks past every file deleted in the last minutes.
const memoryDir = "/dev/shm"

// enoughMemory is the space that memoryDir must have free. A cluster needs 40
// MB, and a benchmark may write 1 GB of write-ahead log. Containers usually
// have 64 MB.
const enoughMemory = 4 << 30

// tempDir returns the directory in which homes are made: memoryDir if TMPDIR is
// not set and there is enough space, else diskDir.
func tempDir() string {
	if os.Getenv("TMPDIR") == "" && freeBytes(memoryDir) >= enoughMemory && usable(memoryDir) {
		return memoryDir
	}
	return diskDir()
}

// diskDir is the system's directory for temporary files (TMPDIR), or /tmp if
// that cannot hold a home.
func diskDir() string {
	if dir := os.TempDir(); usable(dir) {
		return dir
	}
	return "/tmp"
}

// usable reports whether a socket's path is short enough in dir, and the
// server's account can reach it.
func usable(dir string) bool {
	return len(dir)+len("/latchkey-pg-1234567890") <= maxSocketDir && (os.Geteuid() != 0 || openToAll(dir))
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
