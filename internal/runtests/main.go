// Command runtests runs the tests of all modules of this tree. The Makefile's
// targets test, test-long, test-loaded and verify are these calls:
//
//	go run -C internal/runtests . test
//	go run -C internal/runtests . long
//	go run -C internal/runtests . -times 12 -busy 2 test
//	go run -C internal/runtests . verify
//
// It prints a line for each package while it works. At the end it prints what
// was skipped, and why. What stands after "--" goes to go test.
//
// It is to be run in its own folder, as go run -C does.
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
	if err := os.Chdir("../.."); err != nil { // the root of the tree
		fmt.Println("runtests:", err)
		os.Exit(1)
	}
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
	p := plan{out: out, only: regexp.MustCompile(""), without: new(regexp.Regexp)}
	flags.TextVar(p.only, "only", p.only, "a regular expression for the folders of packages")
	// Compiling Caddy takes two minutes, so `make verify` alone tests its module.
	flags.TextVar(p.without, "without", regexp.MustCompile("^examples/gateway/caddy$"), "a regular expression for the folders of packages to leave out")
	flags.StringVar(&p.goVersion, "go", "", "run modules that allow this version of Go, with it")
	times := flags.Int("times", 1, "how many times to run the tests")
	busy := flags.Int("busy", 0, "how many processes keep a processor busy meanwhile")
	steps := regexp.MustCompile("")
	flags.TextVar(steps, "steps", steps, "a regular expression for the steps of verify")
	again := flags.Bool("again", false, "verify repeats the steps that have failed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rest := flags.Args()
	command := strings.Join(rest[:min(1, len(rest))], "")
	p.extra = rest[min(1, len(rest)):]
	if len(p.extra) > 0 {
		if p.extra[0] != "--" || command == "verify" {
			return fmt.Errorf("unknown argument %q: flags stand before the command", p.extra[0])
		}
		p.extra = p.extra[1:]
	}
	switch command {
	case "verify":
		return verify(ctx, steps, *again, out)
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
