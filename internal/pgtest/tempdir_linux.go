package pgtest

import "syscall"

// freeBytes returns how many bytes can be written to dir, or 0 if that is
// unknown.
func freeBytes(dir string) uint64 {
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || mayWrite(dir) != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
