package session

import (
	"syscall"
	"time"
	"unsafe"
)

// bootTime is the time since the system started, suspends included: Go's
// monotonic clock stands still meanwhile (golang/go#24595).
func bootTime() time.Duration {
	const clockBoottime = 7
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
