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

// tempDir returns the directory in which homes are made:
//
//   - TMPDIR if it is set;
//   - else memoryDir, if it has enough space;
//   - else the system's directory for temporary files.
//
// It is /tmp instead if a socket's path would be too long there, or if the
// server's account could not reach it.
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
