package history

import (
	"syscall"
	"unsafe"
)

// Now returns the time of CLOCK_MONOTONIC. All processes of a host share it,
// and no process can set it.
func Now() Moment {
	const clockMonotonic = 1
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic("history: no monotonic clock: " + errno.Error())
	}
	return Moment(t.Nano())
}
