//go:build linux || freebsd

package subprocess

import "syscall"

// endWithParent has the system kill a process when its parent ends. A frozen
// process would not notice that its input has ended.
//
// The process has a group of its own, so that the interrupt key of a terminal
// reaches the parent alone, which then stops its processes in order.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
