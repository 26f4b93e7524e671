package election_test

import (
	"context"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// Three Sessions campaign. The leader resigns some times, and the database is
// stopped. Each later leader has a greater token, and passes the fence. While the
// database is away no Campaign leads. Processes that are killed and frozen are
// in examples/leader and in the fault campaign.
func TestTakeOver(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		const resignations = 5
		db := dbtest.Open(t, driver, cluster.DSN(""))
		dbtest.Create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
		type term struct {
			campaign *election.Campaign
			token    string
		}
		terms, causes := make(chan term, 100), make(chan error, 100)
		var campaigns []*election.Campaign
		for range 3 {
			c := election.New(dbtest.Session(t, driver, cluster.DSN("")), office)
			campaigns = append(campaigns, c)
			campaign(t, c, func(ctx context.Context) error {
				lock, _ := sqllock.FromContext(ctx)
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if err := sqllock.Fence(ctx, tx, lock); err != nil {
					_ = tx.Rollback()
					return err
				}
				if err := tx.Commit(); err != nil {
					return err
				}
				terms <- term{c, c.Status().Token}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			})
		}
		var tokens []string
		next := func() *election.Campaign {
			now := <-terms
			wantLeader(t, slices.Index(campaigns, now.campaign), campaigns...)
			tokens = append(tokens, now.token)
			return now.campaign
		}
		for range resignations {
			next().Resign()
			if cause := <-causes; cause != election.ErrResigned {
				t.Errorf("cause: %v, want ErrResigned", cause)
			}
		}
		next()
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
		if cause := <-causes; cause != sqllock.ErrLost {
			t.Errorf("cause for a leader whose database is away: %v, want ErrLost", cause)
		}
		wantLeader(t, -1, campaigns...)
		if err := cluster.StartAgain(); err != nil {
			t.Fatal(err)
		}
		next()
		if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != resignations+2 {
			t.Errorf("tokens %q, want each greater than the one before", tokens)
		}
	})
}
