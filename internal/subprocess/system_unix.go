//go:build unix

package subprocess

import "syscall"

// Freeze stops the process with SIGSTOP until Thaw, at any instruction.
func (p *Process) Freeze() error { return p.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on, with SIGCONT.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }
