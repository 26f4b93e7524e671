package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The command line of latchkey run.

// A runConfig is what latchkey run was asked to do.
type runConfig struct {
	keys      []sqllock.Key // one, or the slots of --at-most
	shared    bool
	wait      time.Duration // 0: do not wait; forever: without a bound
	conflict  int           // the exit code if the lock is held
	lockDelay time.Duration
	killAfter time.Duration // 0: not set
	lease     time.Duration // 0: the default of the database
	table     bool
	verbose   bool
	command   []string
}

const forever = time.Duration(math.MaxInt64)

const leaseTableFlag = "lease-table"

// defaultLockDelay is time for a holder whose connection was cut to end its
// command, before the next holder starts one.
const defaultLockDelay = 200 * time.Millisecond

func runCommand() *cli.Command {
	one := 1
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command under a lock: flock(1) for a fleet; needs Linux",
		ArgsUsage: "KEY [--] COMMAND [ARGUMENT…]",
		Description: "KEY is NAMESPACE:ID, as a service names it with sqllock.Namespace, or a decimal number.\n" +
			"The exit code is that of COMMAND, or 128+n if signal n has ended it. Other codes:\n" +
			"1 (or -E) the lock is held (-n, -w), 64 usage, 66 the database is away, 69 COMMAND cannot be executed,\n" +
			"71 no process or no lock is left, 75 the lock or its guard was lost, 78 wrong configuration.\n" +
			"The environment of COMMAND has the fencing token of the lock in " + tokenVariable + ". It is unset with -s, and if none can be drawn.",
		StopOnNthArg: &one,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "nonblock", Aliases: []string{"n", "nb"}, Usage: "fail if the lock is held, rather than wait", Local: true},
			&cli.StringFlag{Name: "wait", Aliases: []string{"w", "timeout"}, Usage: "wait for at most this many `SECONDS`; 0 is -n", Local: true},
			&cli.IntFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, Value: 1, Usage: "the exit code `N` if the lock is held", Local: true},
			&cli.BoolFlag{Name: "exclusive", Aliases: []string{"x", "e"}, Usage: "get an exclusive lock (default)", Local: true},
			&cli.BoolFlag{Name: "shared", Aliases: []string{"s"}, Usage: "get a reader's lock; needs PostgreSQL", Local: true},
			&cli.IntFlag{Name: "at-most", Value: 1, Usage: "let `N` commands run at once, as ratelimit.AtMost does", Local: true},
			&cli.DurationFlag{Name: "lease", Usage: "the server frees the lock of a silent process after `DURATION` (10s, SQLite 5s, TiDB 30s)", Local: true, HideDefault: true},
			&cli.DurationFlag{Name: "lock-delay", Value: defaultLockDelay, Usage: "start the command `DURATION` after the lock was granted; must be equal in the fleet", Local: true},
			&cli.DurationFlag{Name: "kill-after", Usage: "send SIGKILL `DURATION` after SIGTERM when the lock is lost; default: before another host can start", Local: true, HideDefault: true},
			&cli.BoolFlag{Name: leaseTableFlag, Usage: "keep the lock in a table, so that it outlives a connection and a restart of the server; must be equal in the fleet", Local: true},
			&cli.BoolFlag{Name: "verbose", Usage: "report how long it took to get the lock, or why there is none", Local: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			config, err := readRunConfig(c)
			if err != nil {
				return err
			}
			db, err := open(c, true)
			if err != nil {
				return err
			}
			defer db.Close()
			return runUnderLock(ctx, db, config)
		},
	}
}

// readRunConfig reads the command line. Its errors are those of usage.
func readRunConfig(c *cli.Command) (*runConfig, error) {
	r := &runConfig{
		shared:    c.Bool("shared"),
		wait:      forever,
		conflict:  c.Int("conflict-exit-code"),
		lockDelay: c.Duration("lock-delay"),
		killAfter: c.Duration("kill-after"),
		lease:     c.Duration("lease"),
		table:     c.Bool(leaseTableFlag),
		verbose:   c.Bool("verbose"),
	}
	args := c.Args().Slice()
	if len(args) > 1 && args[1] == "--" { // latchkey run -- KEY -- COMMAND
		args = append(args[:1:1], args[2:]...)
	}
	if len(args) < 2 {
		return nil, exit(exitUsage, "latchkey run needs a KEY and a COMMAND")
	}
	name, err := parseKey(args[0])
	if err != nil {
		return nil, err
	}
	if text := c.String("wait"); c.IsSet("wait") {
		if r.wait, err = seconds(text); err != nil {
			return nil, err
		}
	}
	if c.Bool("nonblock") {
		r.wait = 0
	}
	atMost := c.Int("at-most")
	switch {
	case r.conflict < 0 || r.conflict > 255:
		return nil, exit(exitUsage, "the exit code of -E is out of range: use 0 to 255")
	case atMost < 1:
		return nil, exit(exitUsage, "--at-most needs a positive number")
	case r.shared && (atMost > 1 || c.Bool("exclusive")):
		return nil, exit(exitUsage, "-s cannot be combined with -x or --at-most")
	case r.lockDelay < 0 || r.killAfter < 0 || r.lease < 0:
		return nil, exit(exitUsage, "a duration cannot be negative")
	}
	r.keys, err = name.slots(atMost)
	r.command = args[1:]
	return r, err
}

// seconds reads a number of seconds, as flock does, or a duration such as 5m.
func seconds(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if number, numberErr := strconv.ParseFloat(text, 64); numberErr == nil {
		d, err = time.Duration(min(number*float64(time.Second), float64(forever/2))), nil
	}
	if err != nil || d < 0 {
		return 0, exit(exitUsage, "invalid timeout: -w needs a number of seconds")
	}
	return d, nil
}

// say prints a line if --verbose is on.
func (r *runConfig) say(format string, args ...any) {
	if r.verbose {
		report("%s", fmt.Sprintf(format, args...))
	}
}
