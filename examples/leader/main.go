// Leader is three processes of which one at a time does the work of all: it starts
// them, ends their leaders one after the other, by exit, kill -9 and freeze, and
// shows who led when, and how soon the next took over.
//
//	go run .
//
// It needs PostgreSQL: the one that DATABASE_URL names, else a throwaway server. A
// candidate is in candidate.go, the recipe; all else is the show around it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	number := flag.Int("candidate", 0, "be candidate `n` (how it starts itself)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *number, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, number int, out io.Writer) error {
	if number > 0 {
		return runCandidate(ctx, number, os.Getenv("DATABASE_URL"), out)
	}
	return withDatabase(func(url string) error { return show(ctx, url, out) })
}
