// Package demo starts instances of a service as processes, ends their leaders,
// and checks by what the instances have logged that two never led at once.
package demo

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// Lease is the lease of an instance's Session, short so that the demonstration
// is short.
const Lease = 2 * time.Second

// Main runs the demonstration. It starts this program again for each instance,
// and calls run there. The database is the PostgreSQL that DATABASE_URL names, or
// a throwaway server.
func Main(run func(ctx context.Context, databaseURL string) error) {
	subprocess.Main(role, run)
	flag.Parse() // there are none: -h and mistakes end the program here
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "leader: it takes no arguments")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := withDatabase(ctx, func(url string) error { return demonstrate(ctx, url, os.Stdout) })
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

func withDatabase(ctx context.Context, do func(url string) error) (err error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		if err := ping(ctx, url); err != nil {
			return err
		}
		return do(url)
	}
	server, err := pgtest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	url, err := server.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	return do(url)
}

// ping returns an error unless the database responds. The instances would wait
// for it. The driver's own error is left out, because its text names a host.
func ping(ctx context.Context, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return errors.New("DATABASE_URL is no connection string of PostgreSQL")
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if db.PingContext(ctx) != nil {
		return errors.New("no PostgreSQL responds at DATABASE_URL")
	}
	return nil
}

// An ending is a way in which a leader ends.
type ending struct {
	name string
	end  func(*instance) error
	mend func(context.Context, *fleet, *instance) error // called when the next instance leads
}

var endings = []ending{
	{"exit", func(i *instance) error { i.Ask(); return nil }, replace},
	{"kill -9", (*instance).kill, replace},
	{"freeze", func(i *instance) error { return i.Freeze() }, thaw},
}

func (i *instance) kill() error { return i.Kill() }

// replace starts another instance for one that has ended.
func replace(ctx context.Context, f *fleet, i *instance) error {
	f.remove(i)
	return f.start(ctx)
}

// thaw ends a freeze. The instance that led wakes up, and must see that it does
// not lead any more.
func thaw(_ context.Context, _ *fleet, i *instance) error { return i.Thaw() }

// Each leader leads for at least leadFor. Leaders end in each way, rounds times.
const (
	rounds  = 2
	leadFor = 300 * time.Millisecond
)

// A change is the change from one leader to the next.
type change struct {
	ending    string
	old, next int
	after     time.Duration
	// What the health endpoints say when the next instance leads, and when the old
	// one has been replaced or has woken up.
	healthNext, healthLater string
}

// demonstrate runs the fleet, ends its leaders, and prints which instance led
// when. It fails if two led at once.
func demonstrate(ctx context.Context, url string, out io.Writer) error {
	fmt.Fprintf(out, "%d instances of a service, each a process, on one PostgreSQL. One of them leads, and does the work of all.\n"+
		"Leaders exit, are killed with kill -9, or freeze (SIGSTOP). The lease is %v. This takes about 10 s …\n\n", fleetSize, Lease)
	began := time.Now()
	var changes []change
	var terms []term
	err := withFleet(ctx, url, func(f *fleet) error {
		for range rounds {
			for _, e := range endings {
				c, err := f.change(ctx, e)
				if err != nil {
					return err
				}
				changes = append(changes, c)
			}
		}
		err := f.stop() // after this the history is complete
		terms = f.history.inOrder()
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(printTerms(out, began, terms), printChanges(out, changes)); err != nil {
		return err
	}
	return printResult(out, terms)
}

// change ends the leader in one way and waits for the next leader.
func (f *fleet) change(ctx context.Context, e ending) (c change, err error) {
	select {
	case <-time.After(leadFor):
	case <-ctx.Done():
		return c, context.Cause(ctx)
	}
	old, err := f.awaitLeader(ctx, time.Now(), 0)
	if err != nil {
		return c, err
	}
	leader, at := f.instance(old.instance), time.Now()
	if err := e.end(leader); err != nil {
		return c, err
	}
	next, err := f.awaitLeader(ctx, at, old.instance)
	if err != nil {
		return c, err
	}
	c = change{ending: e.name, old: old.instance, next: next.instance, after: next.first.Sub(at)}
	c.healthNext = f.health(ctx)
	if err := e.mend(ctx, f, leader); err != nil {
		return c, err
	}
	c.healthLater = f.health(ctx)
	return c, nil
}

// health is what the instances say of themselves.
func (f *fleet) health(ctx context.Context) string {
	leaders, silent := f.leaders(ctx)
	text := fmt.Sprint("leads: ", leaders)
	if silent > 0 {
		text += fmt.Sprintf(", %d silent", silent)
	}
	return text
}

func printTerms(out io.Writer, began time.Time, terms []term) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "LEADER\tFROM\tTO\tWORK\tTOKEN")
	for _, t := range terms {
		fmt.Fprintf(table, "instance %d\t%.3f s\t%.3f s\t%d\t%s\n", t.instance,
			t.first.Sub(began).Seconds(), t.last.Sub(began).Seconds(), t.works, t.token)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "FROM and TO: the leader's first and last work. WORK: how often it worked.\n"+
		"TOKEN: its fencing token, greater than each before. An instance that has ended is replaced by one with a new number.")
	return err
}

func printChanges(out io.Writer, changes []change) error {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "LEADER\tENDS BY\tNEXT\tWORKS AFTER\tHEALTH THEN\tHEALTH LATER")
	for _, c := range changes {
		fmt.Fprintf(table, "instance %d\t%s\tinstance %d\t%v\t%s\t%s\n",
			c.old, c.ending, c.next, c.after.Round(time.Millisecond), c.healthNext, c.healthLater)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "WORKS AFTER: the time from the old leader's end to the next one's first work.\n"+
		"HEALTH: the instances whose GET /health says that they lead, when the next one works (THEN), and when the old one\n"+
		"has been replaced or has woken up (LATER). A frozen instance is silent.")
	return err
}

func printResult(out io.Writer, terms []term) error {
	switch n := overlaps(terms); {
	case n > 0:
		return fmt.Errorf("two instances led at once, %d times", n)
	case len(terms) <= rounds*len(endings):
		return errors.New("a leader that ended was not followed by another")
	case !tokensGrow(terms):
		return errors.New("a later leader had a smaller token")
	}
	fmt.Fprintf(out, "\nOK: %d terms, never two at once, and each with a greater token than the one before.\n", len(terms))
	return nil
}
