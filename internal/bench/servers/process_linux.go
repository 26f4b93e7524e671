package servers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// reservePort returns a port of loopback that no other process is given until
// release. A socket is bound to it that does not listen. A server may bind to
// the same port, if it sets SO_REUSEADDR as this socket does.
func reservePort() (port int, release func(), err error) {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	release = func() { _ = syscall.Close(socket) }
	err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil { // not before: the kernel would choose a port that others reuse
		err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	var own syscall.Sockaddr
	if err == nil {
		own, err = syscall.Getsockname(socket)
	}
	if err != nil {
		release()
		return 0, nil, err
	}
	return own.(*syscall.SockaddrInet4).Port, release, nil
}

// tick is the kernel's unit of time in /proc/PID/stat on every architecture
// that Go runs on.
const tick = 10 * time.Millisecond

// processTime is the processor time of a process's threads, to the nanosecond.
func processTime(pid int) (total time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		ran, _, _ := strings.Cut(string(text), " ")
		ns, _ := strconv.ParseInt(ran, 10, 64)
		total += time.Duration(ns)
	}
	return total
}

// familyTime is the processor time of a process and its children, those that
// have ended included. When a child ends, what was counted to the nanosecond is
// counted in ticks from then on, so that the sum may fall by two of them.
func familyTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	total := processTime(pid) + endedChildrenTime(pid)
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			total += processTime(child)
		}
	}
	return total
}

// endedChildrenTime is cutime + cstime.
func endedChildrenTime(pid int) time.Duration {
	fields := statFields(pid)
	if len(fields) < 15 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[13], 10, 64)
	system, _ := strconv.ParseInt(fields[14], 10, 64)
	return time.Duration(user+system) * tick
}

// parentOf is a process's parent, or 0.
func parentOf(pid int) int {
	fields := statFields(pid)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// statFields is /proc/PID/stat from its third field, the state, on: the second,
// the name in brackets, may hold anything.
func statFields(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	end := bytes.LastIndexByte(text, ')')
	if err != nil || end < 0 {
		return nil
	}
	return strings.Fields(string(text[end+1:]))
}
