//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dbconn

import "syscall"

// canPeek reports whether this system can look at a socket.
const canPeek = true

// Readable reports whether the socket fd has something to read or is at its
// end. It reads nothing and does not wait.
func Readable(fd uintptr) bool {
	var one [1]byte
	for {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		if err == syscall.EINTR {
			continue
		}
		return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK
	}
}
