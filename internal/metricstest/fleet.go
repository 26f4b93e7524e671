package metricstest

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const (
	cycleBegun = `latchkey_watch_findings_total{kind="wait_cycle",state="begun"}`
	cycleOver  = `latchkey_watch_findings_total{kind="wait_cycle",state="over"}`
)

// Two server processes wait for each other, until one gives up. Watch reports it
// to s.
func waitCycle(t *testing.T, start func(*testing.T) Subject) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		s := start(t)
		db := dbtest.Open(t, driver, dsn)
		dbtest.Create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan error, 1)
		go func() {
			watched <- lockwatch.Watch(ctx, db, s.Finding, lockwatch.WithInterval(time.Millisecond), lockwatch.WithLogger(slog.New(slog.DiscardHandler)))
		}()
		t.Cleanup(func() { cancel(); <-watched })
		want(t, s, figures{cycleBegun: 0, cycleOver: 0})

		one, two := holder(t, db, 1), holder(t, db, 2)
		one.wait(2)
		two.wait(1)
		eventually(t, s, cycleBegun, 1)
		want(t, s, figures{cycleOver: 0})
		two.leave()
		eventually(t, s, cycleOver, 1)
		want(t, s, figures{cycleBegun: 1})
	})
}

// A client is a transaction in which PostgreSQL does not look for deadlocks.
type client struct {
	t      *testing.T
	tx     *sql.Tx
	cancel func()
	waited chan struct{}
}

// holder returns a client that holds key.
func holder(t *testing.T, db *sql.DB, key int) *client {
	t.Helper()
	c := &client{t: t, tx: dbtest.Transaction(t, db)}
	if _, err := c.tx.Exec("SET LOCAL deadlock_timeout = '1h'"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.tx.Exec("SELECT pg_advisory_xact_lock(" + strconv.Itoa(key) + ")"); err != nil {
		t.Fatal(err)
	}
	return c
}

// wait makes c wait for key, until it leaves or the test ends.
func (c *client) wait(key int) {
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = c.tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock("+strconv.Itoa(key)+")")
	}()
	c.cancel, c.waited = cancel, waited
	c.t.Cleanup(c.leave)
}

// leave ends the wait, and with it the transaction.
func (c *client) leave() {
	c.cancel()
	<-c.waited
}

// A Finding counts by its kind and by what is reported of it.
func findings(t *testing.T, start func(*testing.T) Subject) {
	s := start(t)
	words := map[lockwatch.FindingKind]string{
		lockwatch.LateHeartbeat:      "late_heartbeat",
		lockwatch.RegistryNotWritten: "registry_not_written",
		lockwatch.WaitCycle:          "wait_cycle",
		lockwatch.HeldLong:           "held_for_long",
		lockwatch.WatchFailed:        "watch_failed",
	}
	series := func(kind, state string) string {
		return `latchkey_watch_findings_total{kind="` + kind + `",state="` + state + `"}`
	}
	for kind, word := range words {
		want(t, s, figures{series(word, "begun"): 0, series(word, "terminated"): 0, series(word, "over"): 0})
		for _, f := range []lockwatch.Finding{{Kind: kind}, {Kind: kind}, {Kind: kind, Terminated: true}, {Kind: kind, Over: true}} {
			s.Finding(f)
		}
		want(t, s, figures{series(word, "begun"): 2, series(word, "terminated"): 1, series(word, "over"): 1})
	}
}

// One of two candidates leads. It resigns, and the other one leads.
func campaign(t *testing.T, start func(*testing.T) Subject) {
	leader := func(name string) string { return `latchkey_campaign_leader{campaign="` + name + `"}` }
	terms := func(name string) string { return `latchkey_campaign_terms_total{campaign="` + name + `"}` }
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		s := start(t)
		stand := func(name string) *election.Campaign {
			c := election.New(dbtest.Session(t, driver, dsn), sqllock.ID(1), election.WithBackoff(time.Hour, time.Hour))
			s.Campaign(name, c)
			want(t, s, figures{leader(name): 0, terms(name): 0})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				done <- c.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
			}()
			t.Cleanup(func() {
				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
			})
			return c
		}
		first := stand("first")
		eventually(t, s, leader("first"), 1)
		stand("second")
		want(t, s, figures{leader("first"): 1, terms("first"): 1, leader("second"): 0, terms("second"): 0})
		first.Resign()
		eventually(t, s, leader("second"), 1)
		want(t, s, figures{leader("first"): 0, terms("first"): 1, terms("second"): 1})
	})
}
