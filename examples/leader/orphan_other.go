//go:build !linux

package main

import "syscall"

// dieWithParent does nothing here: a child ends by itself when its input ends, once it is awake.
func dieWithParent(*syscall.SysProcAttr) {}
