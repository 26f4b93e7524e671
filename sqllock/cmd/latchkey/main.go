// Latchkey is sqllock on the command line. `latchkey run` is flock(1) for a
// fleet: it acquires a lock in a SQL database, runs a command, and ends the
// command if the lock is lost. The other commands show the locks:
//
//	go install github.com/latchkey-go/latchkey/sqllock/cmd/latchkey@latest
//	export DATABASE_URL=postgres://…        # or mysql://…, sqlite:/path/to/file
//	latchkey run -n report:daily -- ./daily-report
//	latchkey ps report:daily
//
// The commands:
//
//	latchkey run [options] KEY [--] COMMAND [ARGUMENT…]
//	latchkey ps [options] [KEY]
//	latchkey doctor [options]
//	latchkey ui [options]
//	latchkey key [options] NAMESPACE ID
//
// KEY is NAMESPACE:ID, as a service names it with sqllock.Namespace, or a
// decimal number. latchkey and each command have --help, and the page on the
// [command] describes them with their exit codes.
//
// [command]: https://github.com/latchkey-go/latchkey/blob/main/docs/command.md
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		os.Exit(beGuard(os.Args[2:]))
	}
	os.Exit(execute(os.Args))
}

// execute runs the program with these arguments, and returns its exit code.
func execute(args []string) int {
	err := program().Run(context.Background(), args)
	if err != nil && strings.HasPrefix(err.Error(), "No help topic for") { // the library repeats a value, which may be an address or a key
		err = exit(exitUsage, "there is no such command: see latchkey --help")
	}
	var e *exitError
	if err != nil && (!errors.As(err, &e) || e.err != nil) {
		report("%v", err)
	}
	return codeOf(err)
}

// report prints a line about the program itself to its standard error.
func report(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "latchkey: %s\n", forCommand(fmt.Sprintf(format, args...)))
}

// forCommand returns a text of the library in words for a person at the command
// line: with the options of this program, and without what needs a program.
func forCommand(text string) string { return commandWords.Replace(text) }

var commandWords = strings.NewReplacer(
	"sqllock: ", "", // the program's name stands for it
	", or use PerTx", "",
	", or WithDialect(sqllock.PostgreSQL) for a system known to implement session-level advisory locks", "",
	"pass WithDialect(sqllock.PostgreSQL) only for a system known to implement session-level advisory locks", "pass --lease-table",
	"pass WithDialect(sqllock.MySQL) if you are sure", "use MySQL or MariaDB itself",
	"WithLeaseTable()", "--lease-table",
	", or pass WithSchema if you trust the owner", ", or pass --schema if you trust the owner",
	"pass it with WithSchema", "pass it with --schema",
	"no Session was given (WithSession)", "a Session is examined by its own process",
	"no namespace was given (WithKeyedNamespace)", "only a process that has the secret can ask",
	"Run lockwatch.Watch in one process, which removes them, or:", "Let one process of the service remove them (lockwatch.Watch), or:",
	", or use sqllock.NewMemory for one process", "",
)

// program returns the command line.
func program() *cli.Command {
	p := &cli.Command{
		Name:                            "latchkey",
		Usage:                           "locks in the SQL database that you already have",
		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: func(c *cli.Command) { c.Hidden = false; markUsageErrors(c) },
		HideHelpCommand:                 true,
		Suggest:                         true,
		UseShortOptionHandling:          true,
		Flags:                           []cli.Flag{databaseFlag(), &cli.BoolFlag{Name: "version", Usage: "print the version", Local: true}},
		Commands:                        []*cli.Command{runCommand(), psCommand(), doctorCommand(), uiCommand(), keyCommand()},
		ExitErrHandler:                  func(context.Context, *cli.Command, error) {}, // execute prints and returns
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Bool("version") {
				return printVersion(c)
			}
			if c.Args().Present() {
				return exit(exitUsage, "there is no such command: see latchkey --help; a key follows run or ps, and an address belongs in "+databaseVariable)
			}
			_ = cli.ShowRootCommandHelp(c)
			return silent(exitUsage)
		},
	}
	markUsageErrors(p)
	return p
}

// aboutFlag matches what the library says of a flag, before or around a value. The
// value may be an address or a key.
var aboutFlag = regexp.MustCompile(`^(invalid value) ".*" (for flag -+[\w-]+)|^flag needs an argument: -+[\w-]+$|^[\w ]+`)

// saidOfFlag returns err of the library without a value.
func saidOfFlag(err error) string {
	m := aboutFlag.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return "the command line is not understood"
	case m[1] != "":
		return m[1] + " " + m[2]
	}
	return m[0]
}

// markUsageErrors gives errors of the command line their exit code.
func markUsageErrors(c *cli.Command) {
	c.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
		return exit(exitUsage, "%s: see %s --help", saidOfFlag(err), c.FullName())
	}
	for _, sub := range c.Commands {
		markUsageErrors(sub)
	}
}

func printVersion(c *cli.Command) error {
	version, goVersion := "(unknown)", ""
	if build, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = build.Main.Version, build.GoVersion
	}
	return print(c.Root().Writer, "latchkey %s %s\n", version, goVersion)
}

// print writes to w. An error says that the reader has gone.
func print(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}
