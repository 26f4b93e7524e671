//go:build !linux

package servers

import (
	"net"
	"syscall"
	"time"
)

// Elsewhere a kill of this process leaves the Redis, and other processes' time
// is not measured.

func dieWithParent(*syscall.SysProcAttr) {}

func processTime(int) time.Duration { return 0 }

func familyTime(int) time.Duration { return 0 }

func parentOf(int) int { return 0 }

// reservePort returns a port that is free now.
func reservePort() (port int, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	return l.Addr().(*net.TCPAddr).Port, func() {}, l.Close()
}
