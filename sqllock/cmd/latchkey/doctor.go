package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// checkTimeout bounds all checks together.
const checkTimeout = time.Minute

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "examine the database, and say what to change",
		Description: "The exit code is 0 if no check warns, 1 for a warning and 2 for an error.\n" +
			"A report holds no key, id, host, user or address.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print the report as JSON", Local: true},
			&cli.IntFlag{Name: "instances", Usage: "the fleet has `N` processes with a Session; needs --locks", Local: true, HideDefault: true},
			&cli.IntFlag{Name: "locks", Usage: "the fleet holds `N` locks at its peak; needs --instances", Local: true, HideDefault: true},
			&cli.BoolFlag{Name: leaseTableFlag, Usage: "expect that locks are rows of a table", Local: true},
			&cli.StringFlag{Name: "schema", Usage: "`SCHEMA` with the registry's tables; the default is the search_path", Local: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			opts, err := doctorOptions(c)
			if err != nil {
				return err
			}
			db, err := open(c, false)
			if err != nil {
				return err
			}
			defer db.Close()
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			report, err := lockdoctor.Check(ctx, db.DB, opts...)
			if err != nil {
				return exit(exitNoDatabase, "the checks took too long: %w", err)
			}
			for i, check := range report.Checks {
				if check.Name == "driver" && check.State == lockdoctor.OK && c.Bool(leaseTableFlag) && db.prepares {
					check.State, check.Reason = lockdoctor.Skipped, driverOfService
				}
				check.Reason, check.Fix = forCommand(check.Reason), forCommand(check.Fix)
				report.Checks[i] = check
			}
			text := report.String()
			if c.Bool("json") {
				encoded, err := json.MarshalIndent(report, "", "  ")
				if err != nil {
					return err
				}
				text = string(encoded) + "\n"
			}
			if _, err := fmt.Fprint(c.Root().Writer, text); err != nil {
				return err
			}
			return silent(report.ExitCode())
		},
	}
}

// driverOfService is what the doctor says of an address with which pgx prepares
// statements. This command does not, and does not know the service's driver.
const driverOfService = "the driver of the service is not known: with pgx, a lease table needs default_query_exec_mode=exec in the connection string"

func doctorOptions(c *cli.Command) (opts []lockdoctor.Option, err error) {
	if instances, locks := c.Int("instances"), c.Int("locks"); c.IsSet("instances") || c.IsSet("locks") {
		if instances < 1 || locks < 1 {
			return nil, exit(exitUsage, "--instances and --locks go together, and both need a positive number")
		}
		opts = append(opts, lockdoctor.WithFleet(instances, locks))
	}
	if c.Bool(leaseTableFlag) {
		opts = append(opts, lockdoctor.WithLeaseTable())
	}
	if schema := c.String("schema"); schema != "" {
		opts = append(opts, lockdoctor.WithSchema(schema))
	}
	return opts, nil
}
