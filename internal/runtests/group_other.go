//go:build !unix

package main

import "os/exec"

// inGroup does nothing: this system has no process groups.
func inGroup(*exec.Cmd) {}

// inSession does nothing: this system has no sessions of processes.
func inSession(*exec.Cmd) {}
