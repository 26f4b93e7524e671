package databases

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// started returns f, and skips the test if its program is not installed.
func started(t *testing.T, f *pgtest.Front, err error) *pgtest.Front {
	t.Helper()
	if errors.Is(err, pgtest.ErrNotInstalled) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.Log())
		}
	})
	return f
}

// HAProxy in front of one primary disturbs no lock when it is reloaded. When it
// dies, holders are told, and callers are served once it is back.
func TestLongHAProxy(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		front, err := pgtest.New(t).HAProxy(nil)
		front = started(t, front, err)
		o := lockertest.Orders{Driver: driver, DSN: front.DSN(""), Lease: time.Minute}
		tr := startTraffic(t, true, process(t, o), process(t, o))
		held := mustLock(t, process(t, o), sqllock.ID(1))
		must(t, front.Reload())
		tr.flows("after the reload")
		if err := held.Err(); err != nil || tr.losses() > 0 {
			t.Errorf("after the reload: %v, %d losses", err, tr.losses())
		}
		must(t, front.Kill())
		awaitLoss(t, held)
		must(t, front.StartAgain())
		tr.flows("after a new start")
		tr.end()
	})
}

// HAProxy closes a connection that is silent for longer than its timeout. So
// the heartbeat must be shorter.
func TestLongHAProxyTimeouts(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		for _, line := range []string{"timeout client 8s", "timeout server 8s"} {
			t.Run(driver+"/"+line, func(t *testing.T) {
				t.Parallel()
				front, err := pgtest.New(t).HAProxy([]string{line})
				front = started(t, front, err)
				db := open(t, driver, front.DSN(""))
				slow := session(t, db, sqllock.WithLease(time.Hour)) // with a heartbeat of 12 minutes
				awaitLoss(t, mustLock(t, slow, sqllock.ID(1)))
				if n := slow.Stats().LossesBy["connection"]; n == 0 {
					t.Error("the loss has another cause")
				}
				quick := session(t, db, sqllock.WithLease(time.Hour), sqllock.WithHeartbeat(100*time.Millisecond))
				lock := mustLock(t, quick, sqllock.ID(2))
				awaitLoss(t, mustLock(t, slow, sqllock.ID(1))) // once more
				if err := lock.Unlock(); err != nil {
					t.Errorf("with a short heartbeat: %v", err)
				}
			})
		}
	}
}

// locksOn fails the test unless the locks of s are on the server of primary.
func locksOn(t *testing.T, primary *pgtest.Cluster, s *sqllock.Session) {
	t.Helper()
	key := sqllock.ID(int64(rand.Int32())) //nolint:gosec // a test's
	lock, err := s.TryLock(t.Context(), key)
	if err != nil {
		return // it was lost: then it is on no server
	}
	n := number(t, open(t, "pgx", primary.DSN("")), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = $1", key.Int64())
	if n == 0 && lock.Err() == nil {
		t.Error("a lock is not on the primary")
	}
	_ = lock.Unlock()
}
