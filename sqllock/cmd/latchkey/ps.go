package main

import (
	"context"
	"encoding/json"
	"errors"
	"os/signal"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// lookTimeout bounds one look at the locks.
const lookTimeout = 10 * time.Second

func psCommand() *cli.Command {
	return &cli.Command{
		Name:      "ps",
		Usage:     "list the locks of the database: who holds them, and who waits",
		ArgsUsage: "[KEY]",
		Description: "With a KEY, as in latchkey run, the list has this key alone, with 1,000 slots of --at-most. The exit code is 1\n" +
			"if there is neither a holder nor a waiter. Each other code above 0 says that this is not known.\n" +
			"Keys appear as numbers. The list has the applications and addresses of clients, and names where sessions write them (WithRegistry).",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print an object for each look, as JSON", Local: true},
			&cli.DurationFlag{Name: "watch", Usage: "look again every `DURATION`, until a signal", Local: true, HideDefault: true},
			&cli.StringFlag{Name: "schema", Usage: "`SCHEMA` with the registry's tables; the default is the search_path", Local: true},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			l := &listing{c: c}
			if c.Args().Len() > 1 {
				return exit(exitUsage, "latchkey ps takes one KEY")
			}
			if text := c.Args().First(); text != "" {
				name, err := parseKey(text)
				if err != nil {
					return err
				}
				l.key = &name
			}
			if schema := c.String("schema"); schema != "" {
				l.opts = append(l.opts, lockwatch.WithSchema(schema))
			}
			db, err := open(c, false)
			if err != nil {
				return err
			}
			defer db.Close()
			if every := c.Duration("watch"); every > 0 {
				return l.watch(ctx, db, every)
			}
			found, err := l.look(ctx, db)
			switch {
			case err != nil || found || l.key == nil:
				return err
			case l.unknown != "":
				return exit(exitConfig, "it is not known whether the key is free: %s", l.unknown)
			}
			return silent(exitFailure)
		},
	}
}

// A listing prints the locks of a database.
type listing struct {
	c    *cli.Command
	key  *keyName // nil: all locks
	opts []lockwatch.InspectOption

	unknown string // after a look: why key may be held though it was not found
}

// watch looks until a signal comes. A look that fails is reported, and the next
// one may succeed.
func (l *listing) watch(ctx context.Context, db *database, every time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, endingSignals...)
	defer stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if _, err := l.look(ctx, db); ctx.Err() != nil {
			return nil
		} else if code := codeOf(err); code != 0 && code != exitNoDatabase {
			return err
		} else if err != nil {
			report("%v", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look prints the locks as they are now. It reports whether there is one.
func (l *listing) look(ctx context.Context, db *database) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	seen, err := lockwatch.Inspect(ctx, db.DB, l.opts...)
	if err != nil {
		return false, lookError(err)
	}
	view, foreign := l.part(lockwatch.NewView(seen))
	found = view.Held+view.Waits > 0
	l.unknown = l.hides(view)
	w := l.c.Root().Writer
	if !l.c.Bool("json") {
		err = print(w, "%s%s", view, map[bool]string{true: "\n"}[l.c.Duration("watch") > 0])
		if foreign && l.unknown == "" && seen.Waits != "" && l.c.Duration("watch") == 0 { // "": this kind of database has no registry
			report("nothing of that namespace is known: is it mistyped? Namespaces are known of locks that Sessions write down (WithRegistry)")
		}
	} else {
		err = json.NewEncoder(w).Encode(newSnapshotJSON(view, foreign))
	}
	if err != nil {
		return found, exit(exitSystem, "the list cannot be written: %w", err)
	}
	return found, nil
}

// hides returns why v may not show the key of l.
func (l *listing) hides(v *lockwatch.View) string {
	switch {
	case l.key == nil:
	case l.key.namespace != "" && v.MakesWithSecret(l.key.namespace):
		return "a Session makes the keys of this namespace with a secret"
	case v.Leases == lockwatch.TableUnreadable, v.Leases == lockwatch.TableUntrusted:
		return "the lease tables are " + string(v.Leases)
	}
	return ""
}

// part returns the part of v that is listed. foreign says that it is empty, and that
// nothing shows whether there is such a namespace.
func (l *listing) part(v *lockwatch.View) (part *lockwatch.View, foreign bool) {
	switch {
	case l.key == nil:
		return v, false
	case l.key.namespace == "":
		return v.Only(l.key.key()), false
	}
	part = v.OnlyID(l.key.namespace, l.key.id)
	return part, part.Held+part.Waits == 0 && !v.Knows(l.key.namespace)
}

// lookError gives the error of a look an exit code that is never 1: that code
// says that a key is free.
func lookError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return exit(exitNoDatabase, "the database did not respond within %v", lookTimeout)
	case errors.Is(err, context.Canceled): // a signal
		return silent(exitNoDatabase)
	case codeOf(err) == exitFailure:
		return exit(exitConfig, "the database rejects the look: %w", err)
	}
	return err
}
