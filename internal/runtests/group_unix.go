//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"time"
)

// inGroup gives c a process group of its own. The end of c's context interrupts
// the group, and kills it after half a minute.
func inGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error {
		group := -c.Process.Pid
		time.AfterFunc(30*time.Second, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGINT)
	}
	c.WaitDelay = time.Minute
}

// inSession gives c a session of its own, as a program of another user has.
// Linux shares processor time between sessions. In the session of the tests, a
// process that is always busy made other processes wait for up to 18 seconds.
func inSession(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
