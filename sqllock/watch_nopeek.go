//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package sqllock

// Elsewhere a closed connection is noticed by the next heartbeat.
const canPeek = false

func peek(uintptr) bool { return true }
