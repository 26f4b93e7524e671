package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A keyName is what names a key on the command line. NAMESPACE:ID is the key that
// a service makes with sqllock.Namespace and ratelimit; the ID may hold colons,
// too. A number is the one that stands for the key in the database.
type keyName struct {
	namespace sqllock.Namespace // "" for a number
	id        string
	number    int64
}

// parseKey reads the KEY of a command. Its error does not repeat the text,
// since an id may be personal data.
func parseKey(text string) (keyName, error) {
	if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		return keyName{number: number}, nil
	}
	namespace, id, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return keyName{}, exit(exitUsage, "KEY is NAMESPACE:ID or a decimal number of 64 bits")
	case !validNamespace(namespace):
		return keyName{}, errNamespace
	}
	return keyName{namespace: sqllock.Namespace(namespace), id: id}, nil
}

var errNamespace = exit(exitUsage, "a namespace is not empty, and holds neither ':' nor '#'")

// validNamespace reports whether the methods of sqllock.Namespace accept n.
func validNamespace(n string) bool { return n != "" && !strings.ContainsAny(n, ":#") }

// key returns the key of one at a time.
func (k keyName) key() sqllock.Key {
	if k.namespace == "" {
		return sqllock.ID(k.number)
	}
	return k.namespace.Key(k.id)
}

// slots returns the keys of n at a time, which are those of ratelimit.AtMost.
func (k keyName) slots(n int) ([]sqllock.Key, error) {
	if n == 1 {
		return []sqllock.Key{k.key()}, nil
	}
	if k.namespace == "" {
		return nil, exit(exitUsage, "--at-most needs a KEY of the form NAMESPACE:ID, since a number has no slots")
	}
	keys := make([]sqllock.Key, n)
	for i := range keys {
		keys[i] = k.namespace.SlotKey(k.id, i)
	}
	return keys, nil
}

// withoutNewline returns text less one newline at its end, which may be that of
// Windows.
func withoutNewline(text string) string {
	line, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return text
	}
	return strings.TrimSuffix(line, "\r")
}

func keyCommand() *cli.Command {
	return &cli.Command{
		Name:      "key",
		Usage:     "print the numbers of a key, as pg_locks shows them",
		ArgsUsage: "NAMESPACE ID",
		Description: "With - for ID the id is read from the standard input, so that it is not in the list of processes.\n" +
			"One newline at its end does not count. This command needs no database.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print the number alone, for latchkey run and pg_advisory_lock", Local: true},
			&cli.IntFlag{Name: "slot", Usage: "the key of slot `N` of --at-most, from 0", Local: true},
		},
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Len() != 2 {
				return exit(exitUsage, "latchkey key needs a NAMESPACE and an ID")
			}
			namespace, id, slot := c.Args().Get(0), c.Args().Get(1), c.Int("slot")
			if !validNamespace(namespace) {
				return errNamespace
			}
			if slot < 0 {
				return exit(exitUsage, "--slot needs a number from 0")
			}
			if id == "-" {
				text, err := io.ReadAll(os.Stdin)
				if err != nil {
					return err
				}
				id = withoutNewline(string(text))
			}
			number := sqllock.Namespace(namespace).SlotKey(id, slot).Int64()
			if c.Bool("quiet") {
				return print(c.Root().Writer, "%d\n", number)
			}
			return print(c.Root().Writer, "key       %d\nclassid   %d\nobjid     %d\nobjsubid  1\n",
				number, uint32(uint64(number)>>32), uint32(number)) // #nosec G115 -- the two halves
		},
	}
}
