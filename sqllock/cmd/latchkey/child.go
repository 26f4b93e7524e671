package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// A child is the command while it runs.
//
// Invariant: until wait is called the system keeps the number of the child and
// of its process group, also when the child has ended. So a signal reaches no
// other process. (On Linux; elsewhere wait is called as soon as it has ended.)
type child struct {
	command   *exec.Cmd
	exited    chan struct{} // closed when the child has ended
	suspended chan struct{} // gets a token when the terminal has stopped the child
	job       job           // its process group and terminal, as far as the system has them
}

// startChild starts the command with the standard files of this process.
func startChild(args, env []string) (*child, error) {
	c, err := startProcess(args, env)
	if errors.Is(err, syscall.ENOEXEC) && scriptShell != "" {
		if path, lookErr := exec.LookPath(args[0]); lookErr == nil {
			c, err = startProcess(asScript(path, args), env)
		}
	}
	if err != nil {
		return nil, err
	}
	go c.awaitExit()
	return c, nil
}

func startProcess(args, env []string) (*child, error) {
	c := &child{
		command:   exec.Command(args[0], args[1:]...), //nolint:gosec,noctx // this is what the program is for
		exited:    make(chan struct{}),
		suspended: make(chan struct{}, 1),
	}
	c.command.Stdin, c.command.Stdout, c.command.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.command.Env = env
	return c, c.job.start(c.command)
}

// asScript returns the arguments that run a script without "#!", as execvp has
// it.
func asScript(path string, args []string) []string {
	return append([]string{scriptShell, path}, args[1:]...)
}

// exitCodeOfStart returns the exit code for an error of startChild.
func exitCodeOfStart(err error) int {
	if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN) {
		return exitSystem
	}
	return exitNotRun
}

// reason returns what the system said, without the path that the caller prints.
func reason(err error) error {
	var path *fs.PathError
	var program *exec.Error
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &program):
		return program.Err
	}
	return err
}

// without returns env less the variable of this name.
func without(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool { return strings.HasPrefix(variable, name+"=") })
}
