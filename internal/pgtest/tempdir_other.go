//go:build !linux

package pgtest

// freeBytes is asked about memoryDir, which only Linux has.
func freeBytes(string) uint64 { return 0 }
