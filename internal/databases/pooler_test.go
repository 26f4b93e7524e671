package databases

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Two hundred callers of two processes share a pooler with two connections. The
// server ends one of these from time to time. No key is granted twice, and no
// lock remains.
func TestTwoHundredCallersBehindPgBouncer(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t)
			bouncer, err := cluster.PgBouncer("transaction", 2)
			if err != nil {
				t.Fatal(err)
			}
			defer bouncer.Close()
			o := lockertest.Orders{Driver: driver, DSN: bouncer.DSN(""), LeaseTable: true}
			direct := open(t, driver, cluster.DSN(""))
			if driver == "pgx" {
				o.DSN = inExecMode(o.DSN)
			}
			sessions := []*sqllock.Session{process(t, o), process(t, o)}
			const keys, callers, rounds = 10, 200, 10
			var (
				inside  [keys]atomic.Int32
				granted atomic.Int64
				wg      sync.WaitGroup
			)
			for i := range callers {
				wg.Go(func() {
					for round := range rounds {
						n := (i + round) % keys
						lock, err := sessions[i%2].Lock(context.Background(), sqllock.ID(int64(n)))
						if err != nil {
							t.Errorf("Lock: %v", err)
							return
						}
						if inside[n].Add(1) > 1 && lock.Err() == nil {
							t.Errorf("key %d is held twice", n)
						}
						granted.Add(1)
						inside[n].Add(-1)
						if err := lock.Unlock(); err != nil && !errors.Is(err, sqllock.ErrUnavailable) {
							t.Errorf("Unlock: %v", err)
						}
						if i == 0 {
							execute(t, direct, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
								WHERE pid <> pg_backend_pid() AND datname = current_database() LIMIT 1`)
						}
					}
				})
			}
			wg.Wait()
			lockertest.Eventually(t, "no lock remains", func() bool { return number(t, direct, leaseRows) == 0 })
			if got := granted.Load(); got != callers*rounds {
				t.Errorf("%d grants, want %d", got, callers*rounds)
			}
			t.Logf("%d grants; losses %d and %d", granted.Load(), sessions[0].Stats().Losses, sessions[1].Stats().Losses)
		})
	}
}
