// Command runtests runs the tests of all modules of this tree. The Makefile's
// targets test, test-long, test-loaded and verify are these calls:
//
//	go run ./internal/runtests test
//	go run ./internal/runtests long
//	go run ./internal/runtests -times 12 -busy 2 test
//	go run ./internal/runtests verify
//
// It prints a line for each package while it works. At the end it prints what
// was skipped, and why. What stands after "--" goes to go test.
//
// The exit status is 1 if a test has failed. It is 3 if all tests passed, but
// some need a program that this machine lacks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case errors.Is(err, errIncomplete):
		fmt.Println("runtests:", err)
		os.Exit(3)
	case err != nil:
		fmt.Println("runtests:", err)
		os.Exit(1)
	}
}

var (
	errFailed     = errors.New("tests have failed")
	errIncomplete = errors.New("INCOMPLETE: all tests passed that this machine can run")
)

// run carries out the command in args. The current directory is the root of
// the tree.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("runtests", flag.ContinueOnError)
	flags.SetOutput(out)
	only := flags.String("only", "", "a regular expression for the folders of packages")
	// Compiling Caddy takes two minutes, so `make verify` alone tests its module.
	without := flags.String("without", "^examples/gateway/caddy$", "a regular expression for the folders of packages to leave out")
	goVersion := flags.String("go", "", "run modules that allow this version of Go, with it")
	times := flags.Int("times", 1, "how many times to run the tests")
	busy := flags.Int("busy", 0, "how many processes keep a processor busy meanwhile")
	steps := flags.String("steps", "", "a regular expression for the steps of verify")
	again := flags.Bool("again", false, "verify repeats the steps that have failed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rest := flags.Args()
	command := strings.Join(rest[:min(1, len(rest))], "")
	extra := rest[min(1, len(rest)):]
	if len(extra) > 0 {
		if extra[0] != "--" || command == "verify" {
			return fmt.Errorf("unknown argument %q: flags stand before the command", extra[0])
		}
		extra = extra[1:]
	}
	patterns := map[*string]*regexp.Regexp{only: nil, without: nil, steps: nil}
	for text := range patterns {
		var err error
		if patterns[text], err = regexp.Compile(*text); err != nil {
			return err
		}
	}
	if command == "verify" {
		return verify(ctx, patterns[steps], *again, out)
	}
	p := plan{only: patterns[only], without: patterns[without], goVersion: *goVersion, extra: extra, out: out}
	switch command {
	case "test":
	case "long":
		p.long = true
	default:
		return fmt.Errorf("unknown command %q: use test, long or verify", command)
	}
	stop, err := startBusy(*busy)
	if err != nil {
		return err
	}
	defer stop()
	return p.repeat(ctx, *times)
}
