package main

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A gate is the process of the command before it is the command. It waits until
// the guard, which then knows its process group, lets it execute the command.
// So no moment of this program is too early for kill -9 or for a freeze.
//
// The gate has one end of a socket. The guard sends a byte through the other
// end, and this program reads there why the command could not be executed.

// gateCommand is the argument with which the program is a gate. The number of
// its end of the socket follows, then the path and the arguments.
const gateCommand = "gate"

// throughGate makes c a gate for the command that it was, and returns both ends
// of the socket. The gate gets its end under the same number, because a number
// such as 3 may be that of a file which the caller passes to the command.
func throughGate(c *exec.Cmd) (ours, theirs int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	c.Args = append([]string{os.Args[0], gateCommand, strconv.Itoa(pair[1]), c.Path}, c.Args...)
	c.Path = "/proc/self/exe"
	_, err = unix.FcntlInt(uintptr(pair[1]), unix.F_SETFD, 0) // #nosec G115 -- it is inherited
	return pair[0], pair[1], err
}

// beGate is the gate process. It becomes the command, or returns its exit code.
func beGate(args []string) int {
	socket, err := strconv.Atoi(args[0])
	if err != nil || !isPacketSocket(socket) {
		report("%s is for latchkey run alone, which starts it", gateCommand)
		return exitUsage
	}
	unix.CloseOnExec(socket)
	defaultSignals()
	// The system has the signal for the end of the parent for each thread, and
	// keeps that of the thread that executes the command.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return refuse(socket, err)
	}
	var b [1]byte
	for {
		n, err := unix.Read(socket, b[:])
		if err == unix.EINTR {
			continue
		} else if err != nil || n == 0 { // nobody can open it any more
			return exitLost
		}
		break
	}
	path, command := args[1], args[2:]
	err = syscall.Exec(path, command, os.Environ()) //nolint:gosec // this is what the program is for
	if errors.Is(err, syscall.ENOEXEC) {
		command = asScript(path, command)
		err = syscall.Exec(command[0], command, os.Environ()) //nolint:gosec // the same
	}
	return refuse(socket, err)
}

// defaultSignals has the system end this process at a signal, as it ends a
// command that does not catch it. A signal that Go catches would be lost if the
// command is executed before Go acts on it.
func defaultSignals() {
	var action [8]uint64 // more than a struct sigaction; 0 is SIG_DFL
	for _, s := range slices.Concat(endingSignals, passedSignals) {
		if !signal.Ignored(s) {
			const maskBytes = 8
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signalNumber(s)), // #nosec G115
				uintptr(unsafe.Pointer(&action)), 0, maskBytes, 0, 0) // #nosec G103 -- package signal keeps its handler
		}
	}
}

// refuse tells the first process why the command was not executed.
func refuse(socket int, err error) int {
	var number syscall.Errno
	_ = errors.As(err, &number)
	_, _ = unix.Write(socket, binary.BigEndian.AppendUint32(nil, uint32(number))) // #nosec G115
	return exitNotRun
}

// refused returns why the command, which has ended, was not executed, or nil.
func (j *job) refused() error {
	defer unix.Close(j.gate)
	var b [4]byte
	if n, _, err := unix.Recvfrom(j.gate, b[:], unix.MSG_DONTWAIT); err != nil || n < len(b) {
		return nil
	}
	return syscall.Errno(binary.BigEndian.Uint32(b[:]))
}

// isPacketSocket reports whether file is one of those that this program makes.
func isPacketSocket(file int) bool {
	kind, err := unix.GetsockoptInt(file, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET
}
