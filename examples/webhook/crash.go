package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The points at which a receiver can be made to kill itself, by WEBHOOK_CRASH.
const (
	beforeCommit = "before-commit" // the effect is done and not committed
	afterCommit  = "after-commit"  // it is committed, and the sender does not know
)

// A crash is the fault that is injected: the process kills itself with SIGKILL, at a
// point of the n-th event that it processes. A nil *crash never does.
type crash struct {
	point string
	left  atomic.Int32
}

// parseCrash reads point and n, such as after-commit:20; "" is no crash.
func parseCrash(text string) (*crash, error) {
	if text == "" {
		return nil, nil
	}
	point, count, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(count, 10, 32)
	if err != nil || n <= 0 || (point != beforeCommit && point != afterCommit) {
		return nil, errors.New("WEBHOOK_CRASH must be before-commit:N or after-commit:N")
	}
	c := &crash{point: point}
	c.left.Store(int32(n))
	return c, nil
}

// at is called at each point with the event at work; again: it is not its first
// time.
func (c *crash) at(point, event string, again bool) {
	if c == nil || c.point != point || again || c.left.Add(-1) != 0 {
		return
	}
	say(line{Crash: point, Event: event})
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing more happens here
}
