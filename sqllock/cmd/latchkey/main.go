// Latchkey is sqllock on the command line. `latchkey run` is flock(1) for a
// fleet: it acquires a lock in a SQL database, runs a command, and ends the
// command if the lock is lost. The other commands show the locks:
//
//	export DATABASE_URL=postgres://…
//	latchkey run -n report:daily -- ./daily-report
//	latchkey ps report:daily
//
// docs/command.md describes all of them, with their exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == guardCommand:
		os.Exit(beGuard())
	case len(os.Args) > 4 && os.Args[1] == gateCommand:
		os.Exit(beGate(os.Args[2:]))
	}
	os.Exit(execute(os.Args))
}

// execute runs the program with these arguments, and returns its exit code.
func execute(args []string) int {
	err := program().Run(context.Background(), args)
	var e *exitError
	if err != nil && (!errors.As(err, &e) || e.err != nil) {
		report("%v", err)
	}
	return codeOf(err)
}

// report prints a line about the program itself to its standard error. Errors
// of sqllock say so; here the program's name stands for that.
func report(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "latchkey: %s\n", strings.ReplaceAll(fmt.Sprintf(format, args...), "sqllock: ", ""))
}

// program returns the command line.
func program() *cli.Command {
	p := &cli.Command{
		Name:                            "latchkey",
		Usage:                           "locks in the SQL database that you already have",
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: func(c *cli.Command) { c.Hidden = false },
		HideHelpCommand:                 true,
		Suggest:                         true,
		UseShortOptionHandling:          true,
		Flags:                           []cli.Flag{databaseFlag()},
		Commands:                        []*cli.Command{runCommand(), psCommand(), doctorCommand(), uiCommand(), keyCommand(), versionCommand()},
		ExitErrHandler:                  func(context.Context, *cli.Command, error) {}, // execute prints and returns
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return exit(exitUsage, "there is no command %q: see latchkey --help", c.Args().First())
			}
			_ = cli.ShowRootCommandHelp(c)
			return silent(exitUsage)
		},
	}
	markUsageErrors(p)
	return p
}

// markUsageErrors gives errors of the command line their exit code.
func markUsageErrors(c *cli.Command) {
	c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
		return exit(exitUsage, "%w: see %s --help", err, c.FullName())
	}
	for _, sub := range c.Commands {
		markUsageErrors(sub)
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(_ context.Context, c *cli.Command) error {
			version, goVersion := "(unknown)", ""
			if build, ok := debug.ReadBuildInfo(); ok {
				version, goVersion = build.Main.Version, build.GoVersion
			}
			return print(c.Root().Writer, "latchkey %s %s\n", version, goVersion)
		},
	}
}

// print writes to w. An error says that the reader has gone.
func print(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}
