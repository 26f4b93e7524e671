//go:build !linux

package main

import "time"

// A guard is a process that ends the command when this program cannot. There is
// none on this system.
type guard struct{ gone chan struct{} }

// guardCommand and gateCommand are no arguments of this program here.
const guardCommand, gateCommand = "", ""

func beGuard() int { return exitUsage }

func beGate([]string) int { return exitUsage }

func startGuard() (*guard, error) { return &guard{}, nil }

func (*guard) hold(*watchedLock, *sockets) error { return nil }
func (*guard) protect(*child) error              { return nil }
func (*guard) extend(time.Duration)              {}
func (*guard) release()                          {}

var started = time.Now()

// bootTime is the time since this program has started. Only differences matter.
func bootTime() time.Duration { return time.Since(started) }
