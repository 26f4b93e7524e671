package sqllock_test

import (
	"maps"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A server process that an administrator ends is one loss by "connection", with
// all its locks.
func TestLossFigures(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		var connected, lost, locksLost atomic.Int64
		s := session(t, driver, dsn, sqllock.WithObserver(sqllock.Observer{
			Connected: func() { connected.Add(1) },
			Lost: func(cause string, locks int) {
				if cause != "connection" {
					t.Errorf("lost by %q", cause)
				}
				lost.Add(1)
				locksLost.Add(int64(locks))
			},
		}))
		locks := take(t, s, 0, 20)
		observer := open(t, driver, dsn)
		number(t, observer, "SELECT pg_terminate_backend(("+sessionPID+"))::int")
		allLost(t, locks)
		servesAgain(t, s, sqllock.ID(0))
		got := s.Stats()
		want := map[string]uint64{"lease": 0, "connection": 1, "not_exclusive": 0, "lock_missing": 0}
		if !maps.Equal(got.LossesBy, want) || got.LocksLost != 20 {
			t.Errorf("losses %v with %d locks, want one by connection with 20", got.LossesBy, got.LocksLost)
		}
		if connected.Load() != 2 || lost.Load() != 1 || locksLost.Load() != 20 {
			t.Errorf("told of %d connections and %d losses with %d locks; want 2, 1 and 20", connected.Load(), lost.Load(), locksLost.Load())
		}
	})
}

// A server that stops to answer costs the locks after the lease.
func TestLossByLease(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		s := session(t, driver, cluster.DSN(""), sqllock.WithLease(2*time.Second))
		locks := take(t, s, 0, 3)
		if err := cluster.Freeze(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cluster.Thaw(); err != nil {
				t.Error(err)
			}
		}()
		allLost(t, locks)
		if got := s.Stats(); got.LossesBy["lease"] != 1 || got.Losses != 1 || got.LocksLost != 3 || got.LeaseRemaining != 0 {
			t.Errorf("losses %v with %d locks, %v of the lease remain; want one by lease with 3", got.LossesBy, got.LocksLost, got.LeaseRemaining)
		}
	})
}

// The figures of the server's lock table are those of the server.
func TestTableFiguresOfTheServer(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		s := session(t, driver, dsn, sqllock.WithLease(2*time.Second))
		observer := open(t, driver, dsn)
		size := number(t, observer, `SELECT current_setting('max_locks_per_transaction')::int
			* (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)`)
		take(t, s, 0, 300)
		lockertest.Eventually(t, "the locks are in the figures", func() bool {
			got := s.Stats()
			return got.TableSize == size && got.TableUsed >= 300 && got.TableUsed <= size
		})
	})
}

// A Session at work has each of its figures, and they agree with each other.
func TestStatsAtWork(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		var exchanges, keys atomic.Int64
		s := session(t, driver, dsn, sqllock.WithLease(10*time.Second), sqllock.WithHeartbeat(time.Second),
			sqllock.WithObserver(sqllock.Observer{Exchanged: func(_ time.Duration, n int) {
				exchanges.Add(1)
				keys.Add(int64(n))
			}}))
		locks := take(t, s, 0, 50)
		if _, err := s.TryLock(t.Context(), sqllock.ID(0)); err != sqllock.ErrHeld {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
		got := s.Stats()
		switch {
		case got.Lease != 10*time.Second || got.Heartbeat != time.Second:
			t.Errorf("lease %v, heartbeat %v", got.Lease, got.Heartbeat)
		case got.LeaseRemaining <= 0 || got.LeaseRemaining > 8*time.Second:
			t.Errorf("%v of the lease remain, want up to 8s", got.LeaseRemaining)
		case got.Granted != 50 || got.Denied != 1 || got.Failed != 0:
			t.Errorf("%d granted, %d denied, %d failed; want 50, 1 and 0", got.Granted, got.Denied, got.Failed)
		case got.ExchangeKeys.Sum != 50:
			t.Errorf("%v keys were exchanged, want 50", got.ExchangeKeys.Sum)
		case got.ExchangeTime.Count != got.Exchanges || got.ExchangeTime.Sum <= 0 || math.IsNaN(got.ExchangeTime.Sum):
			t.Errorf("%d of %d exchanges have a time, %v s in all", got.ExchangeTime.Count, got.Exchanges, got.ExchangeTime.Sum)
		}
		for _, lock := range locks {
			unlocks(t, lock)
		}
		lockertest.Eventually(t, "the Observer knows what the figures say", func() bool {
			got := s.Stats()
			return uint64(exchanges.Load()) == got.Exchanges && float64(keys.Load()) == got.ExchangeKeys.Sum && keys.Load() == 100
		})
	})
}
