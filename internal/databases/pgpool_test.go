package databases

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Pgpool-II in front of one server serves Sessions: it keeps a server process for
// each client. It resets the process when the client leaves.
func TestLongPgpool(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		cluster := pgtest.New(t)
		front, err := cluster.Pgpool(nil)
		front = started(t, front, err)
		o := lockertest.Orders{Driver: driver, DSN: front.DSN(""), Lease: time.Minute}
		tr := startTraffic(t, true, process(t, o), process(t, o))
		holder := lockertest.StartHolder(t, lockertest.Orders{Driver: driver, DSN: o.DSN, Lease: time.Minute, Locks: 1})
		rival := process(t, o)
		if _, err := rival.TryLock(t.Context(), lockertest.WorkerKey(0)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock of a key that another process holds: %v", err)
		}
		must(t, holder.Kill())
		awaitGrant(t, "the key of a killed process is free", rival, lockertest.WorkerKey(0))
		tr.flows("after the death of a client")
		if n := tr.losses(); n > 0 {
			t.Errorf("%d losses", n)
		}
		tr.end()
	})
}

// How many attempts of TestLongPgpoolInFrontOfStandby are rejected.
func someOf(rejected, _ int) bool { return rejected > 0 }
func allOf(rejected, of int) bool { return rejected == of }
func noneOf(rejected, _ int) bool { return rejected == 0 }

// Pgpool-II in front of a primary and a standby sends what only reads to either.
// Open rejects a session whose statements would go to both, and accepts one
// whose statements all go to the primary. Without load balancing it accepts all,
// and none if all that reads goes to the standby.
func TestLongPgpoolInFrontOfStandby(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	standby, err := cluster.Standby()
	must(t, err)
	tests := map[string]struct {
		settings   []string
		rejects    func(rejected, of int) bool
		leaseTable bool
	}{
		"default":              {nil, someOf, false},
		"reads at the standby": {[]string{"backend_weight0 = 0"}, allOf, false},
		"for each statement":   {[]string{"statement_level_load_balance = on"}, someOf, false},
		"no load balancing":    {[]string{"load_balance_mode = off"}, noneOf, false},
		"default, lease table": {nil, noneOf, true},
	}
	for name, tt := range tests {
		for _, driver := range pgtest.Drivers() {
			t.Run(name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				front, err := cluster.Pgpool(tt.settings, standby)
				front = started(t, front, err)
				rejected, losses := 0, uint64(0)
				attempts := 0
				for ; attempts < 4 || attempts < 60 && !tt.rejects(rejected, attempts); attempts++ {
					dsn, opts := front.DSN(""), []sqllock.Option{sqllock.WithLease(time.Hour), sqllock.WithHeartbeat(20 * time.Millisecond)}
					if tt.leaseTable {
						dsn, opts = unprepared(driver, dsn), append(opts, sqllock.WithLeaseTable())
					}
					db := open(t, driver, dsn)
					s, err := sqllock.Open(t.Context(), db, opts...)
					if err != nil {
						if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "load_balance_mode = off") && !strings.Contains(err.Error(), "WithLeaseTable()") {
							t.Errorf("Open: %v, want ErrNotExclusive with advice", err)
						}
						rejected++
						_ = db.Close() // Pgpool-II has few places
						continue
					}
					if !tt.leaseTable {
						locksOn(t, cluster, s)
					}
					lock, err := s.TryLock(t.Context(), sqllock.ID(-int64(len(t.Name()))))
					if err == nil {
						lockertest.Eventually(t, "heartbeats", func() bool { return lock.Err() != nil || s.Stats().Exchanges > 20 })
						_ = lock.Unlock()
					}
					losses += s.Stats().Losses
					_, _ = s.Close(), db.Close()
				}
				t.Logf("%d of %d rejected, %d losses", rejected, attempts, losses)
				if !tt.rejects(rejected, attempts) || rejected == 0 && losses > 0 {
					t.Error("that is not as it should be")
				}
			})
		}
	}
}
