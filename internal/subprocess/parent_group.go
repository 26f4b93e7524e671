//go:build unix && !linux && !freebsd

package subprocess

import "syscall"

// endWithParent gives a process a group of its own. When its parent has ended,
// the system wakes a stopped process of such a group with a hangup, which ends
// it. A process that runs notices that its input has ended.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
