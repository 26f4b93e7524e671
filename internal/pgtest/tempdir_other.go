//go:build !linux

package pgtest

// freeBytes is called with memoryDir, which only Linux has.
func freeBytes(string) uint64 { return 0 }
