package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A failure is the end of a command that has failed. It names what the command
// complained of first, and keeps all of it.
type failure struct {
	command string
	output  string
}

func (f *failure) Error() string { return f.command + " says: " + complaint(f.output) }

// complaint returns the first line of a go command's output that tells what is
// wrong.
func complaint(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading ") &&
			!strings.HasPrefix(line, "go: creating ") && !strings.HasPrefix(line, "go: added ") && !strings.HasPrefix(line, "go: to add ") {
			return line
		}
	}
	return "nothing"
}

// A place is a folder and an environment, in which commands run.
type place struct {
	dir string
	env []string // in addition to that of this program
}

// in returns the place with another folder.
func (p place) in(dir string) place { return place{dir, p.env} }

// run runs a command, and returns what it prints to its standard output.
func (p place) run(ctx context.Context, name string, args ...string) (string, error) {
	if name == "go" {
		name = cmp.Or(strings.TrimSpace(os.Getenv("GO")), "go") // as in the Makefile
	}
	c := exec.CommandContext(ctx, name, args...) //nolint:gosec // the commands of this program
	c.Dir = p.dir
	c.Env = append(os.Environ(), p.env...)
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		command := strings.Join(append([]string{name}, args[:min(2, len(args))]...), " ")
		return "", &failure{command, fmt.Sprintf("%s%s\n%v", &stderr, &stdout, err)}
	}
	return stdout.String(), nil
}

// all runs several commands, each written in one line, until one fails.
func (p place) all(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		words := strings.Fields(command)
		if _, err := p.run(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}
