package main

import "syscall"

// dieWithParent has the kernel end a child when this process is killed: a frozen one would not see that its
// input has ended.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
