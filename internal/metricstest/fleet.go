package metricstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

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
