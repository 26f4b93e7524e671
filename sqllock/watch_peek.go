//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sqllock

import "syscall"

const canPeek = true

// peek reports whether the socket fd has something to read or is at its end.
func peek(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == syscall.EINTR {
			continue
		}
		return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK
	}
}
