//go:build linux

// Command patroni runs a campaign of failovers: processes that use latchkey work
// on a PostgreSQL cluster under Patroni, etcd and HAProxy, while nodes are
// killed and cut off. Everything that they saw is checked.
//
//	go run ./patroni -each 20
//	go run ./patroni -each 200 -clusters 3 -round 16 -out results
//	go run ./patroni -each 3 -rows 4,5 -ttl 30s -loop 10s -retry 10s -lease 10s
//
// A campaign with -out goes on where it was interrupted, or where -for ended it.
// A round that goes on when it is interrupted is lost. It needs root on Linux
// and Debian's packages of the programs; it says which are missing. When no fault
// is missing, it needs none of them, and prints the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/latchkey-go/latchkey/internal/chaos/patroni/network"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/round"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/sandbox"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func main() {
	network.Enter()         // does not return in a process that belongs to another host
	worker.Main()           // nor in a process under test
	sandbox.Main(round.Run) // nor in a sandbox
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "patroni:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var own *temporary
	if o.dir == "" {
		if own, err = newTemporary(); err != nil {
			return err
		}
		o.dir = own.dir
	}
	results, err := o.rounds(ctx, stderr)
	if len(results) > 0 {
		fmt.Fprintf(stdout, "\n%s\n", o.markdown(results))
		err = errors.Join(err, violations(results))
	}
	kept := err != nil && len(results) > 0
	if kept {
		fmt.Fprintln(stderr, "results, and the histories of what went wrong, are in", o.dir)
	}
	switch {
	case own == nil:
	case kept:
		err = errors.Join(err, own.keep())
	default:
		err = errors.Join(err, own.remove())
	}
	return err
}
