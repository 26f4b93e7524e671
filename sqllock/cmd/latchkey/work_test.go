//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workArgument is the argument with which this test binary is the command that
// latchkey runs.
const workArgument = "work"

// work is the command of the tests. It takes the lock of a file for as long as
// it lives, and does not wait for it: if another such command lives, it prints
// "overlap" into the file.
//
//   - "once" ends at once.
//   - "stay" prints its process id and stays until a signal or the end of its
//     input.
//   - "stubborn" is "stay" and ignores SIGTERM.
//   - "lasting" prints its process id, and ignores SIGTERM and the end of its
//     input. It ends by itself after two minutes, in case a test fails.
//   - "parent" waits for a child that is "lasting".
//   - "parent of signals" waits for a child that is "signals".
//   - "signals" prints each signal that it gets.
func work(args []string) int {
	file, err := os.OpenFile(args[1], os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return 2
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		fmt.Fprintln(file, "overlap")
		return 3
	}
	fmt.Fprintln(file, "begin")
	switch args[0] {
	case "stay":
		fmt.Println(os.Getpid())
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(os.Getpid())
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "lasting":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(os.Getpid())
		time.Sleep(2 * time.Minute)
	case "parent", "parent of signals":
		mode := "lasting"
		if args[0] != "parent" {
			mode = "signals"
		}
		c := exec.Command(os.Args[0], workArgument, mode, args[1]+"-child")
		c.Stdout = os.Stdout
		if c.Run() != nil {
			return 4
		}
	case "signals":
		got := make(chan os.Signal, 8)
		signal.Notify(got)
		fmt.Println("ready")
		for s := range got {
			if s != syscall.SIGURG { // of Go's runtime
				fmt.Println(s)
			}
			if s == syscall.SIGTERM {
				return 7
			}
		}
	}
	fmt.Fprintln(file, "end")
	return 0
}

// worker returns the arguments of latchkey that run work.
func worker(mode, file string) []string { return []string{"--", self, workArgument, mode, file} }

// readWork returns the lines that the commands have written.
func readWork(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// isFree reports whether no command that works on the file lives.
func isFree(t *testing.T, file string) bool {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
