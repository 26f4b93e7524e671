//go:build linux

package main

import (
	"net"
	"testing"
)

// A command does not begin under a guard that could not be given the connection
// of the lock. The connection here has no descriptor.
func TestGuardWithoutTheConnection(t *testing.T) {
	g, err := startGuard()
	if err != nil {
		t.Fatal(err)
	}
	defer g.release()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := g.hold(new(watchedLock), &sockets{all: []net.Conn{here}}); err == nil {
		t.Error("the guard is said to have a connection")
	}
	if err := g.hold(&watchedLock{rows: true}, new(sockets)); err != nil {
		t.Errorf("a lock in a table: %v", err)
	}
}
