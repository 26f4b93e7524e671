package election_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// The database goes away under a leader and two candidates that wait. The
// leader steps down, and no process leads until the database is back.
func TestDatabaseAway(t *testing.T) {
	ways := []struct {
		name        string
		leave, back func(*pgtest.Cluster) error
	}{
		{"stopped", (*pgtest.Cluster).Stop, (*pgtest.Cluster).StartAgain},
		{"killed", (*pgtest.Cluster).Kill, (*pgtest.Cluster).StartAgain},
		{"cut off", (*pgtest.Cluster).Freeze, (*pgtest.Cluster).Thaw},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
				var h history
				campaigns, causes := campaignAll(t, driver, cluster.DSN(""), &h)
				lockertest.Eventually(t, "a process leads", func() bool { _, _, ok := h.since(time.Unix(0, 0), 0); return ok })
				for len(causes) > 0 {
					t.Logf("a slow machine has ended a term: %v", <-causes)
				}
				if err := way.leave(cluster); err != nil {
					t.Fatal(err)
				}
				if cause := <-causes; cause != sqllock.ErrLost {
					t.Errorf("cause for a leader whose database is away: %v, want ErrLost", cause)
				}
				lockertest.Eventually(t, "no process leads while the database is away", func() bool { return leading(campaigns) == 0 })
				if err := way.back(cluster); err != nil {
					t.Fatal(err)
				}
				back := time.Now()
				lockertest.Eventually(t, "a process leads again", func() bool { _, _, ok := h.since(back, 0); return ok })
				h.check(t)
			})
		})
	}
}

// campaignAll runs three campaigns until the test ends, each on a Session of
// its own. It keeps the observations in h. causes receives the cause of the end
// of each term.
func campaignAll(t *testing.T, driver, dsn string, h *history) (campaigns []*election.Campaign, causes <-chan error) {
	t.Helper()
	ended := make(chan error, 100)
	for i := range 3 {
		s := dbtest.Session(t, driver, dsn, sqllock.WithLease(2*time.Second))
		c := election.New(s, office, election.WithBackoff(100*time.Millisecond, time.Second))
		campaign(t, c, func(ctx context.Context) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		ctx, cancel := context.WithCancel(context.Background())
		var watching sync.WaitGroup
		watching.Go(func() { watchStatus(ctx, i+1, c, h.add) })
		t.Cleanup(func() { cancel(); watching.Wait() })
		campaigns = append(campaigns, c)
	}
	return campaigns, ended
}

func leading(campaigns []*election.Campaign) (n int) {
	for _, c := range campaigns {
		if c.Status().Leader {
			n++
		}
	}
	return n
}
