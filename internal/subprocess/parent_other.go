//go:build !unix

package subprocess

import "syscall"

// endWithParent does nothing here: a process notices that its input has ended.
func endWithParent() *syscall.SysProcAttr { return nil }
