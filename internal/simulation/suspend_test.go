package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A process whose machine was suspended past the lease sees the loss as soon as
// it calls Err, before any timer has fired and before a response.
func TestSuspend(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		bound, cancel := lock.Bind(t.Context())
		defer cancel()
		st.link.asleep.Add(int64(trust - 1))
		wantErr(t, "Err after a suspend that ends just before the deadline", lock.Err(), nil)
		st.link.asleep.Add(1)
		if bound.Err() == nil {
			t.Error("Err of a bound context is nil after a suspend past the lease")
		}
		wantErr(t, "Err after a suspend past the lease", lock.Err(), sqllock.ErrLost)
		wantErr(t, "Unlock", lock.Unlock(), sqllock.ErrLost)
		time.Sleep(ticks)
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	})
}

// The lease counts from the moment at which the statement was sent, by the boot
// clock as well. The server may count from then.
func TestSuspendAfterSlowResponse(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		const slow = 500 * time.Millisecond
		st.conn(0).hooks(nil, func() error { time.Sleep(slow); return nil })
		lock := mustTry(t, s, sqllock.ID(1))
		st.link.asleep.Add(int64(trust - slow - 1))
		wantErr(t, "Err just before the deadline", lock.Err(), nil)
		st.link.asleep.Add(1)
		wantErr(t, "Err at the deadline", lock.Err(), sqllock.ErrLost)
	})
}

// Suspends that are shorter than the lease cost no lock if heartbeats come in
// between.
func TestShortSuspends(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		beat := s.Stats().Heartbeat
		for range 20 {
			st.link.asleep.Add(int64(trust - beat - time.Second))
			synctest.Wait()
			time.Sleep(beat + time.Second/2)
			wantErr(t, "Err", lock.Err(), nil)
		}
		if n := s.Stats().Losses; n != 0 {
			t.Errorf("%d losses", n)
		}
		mustUnlock(t, lock)
	})
}

// A process that stood still for the lease learns of it by an error: the server
// has ended its silent session. The cause in the figures is the lease.
func TestLossAfterFreeze(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		mustTry(t, s, sqllock.ID(1))
		st.conn(0).hooks(nil, func() error { st.link.asleep.Add(int64(trust)); return errGone })
		beginTry(background, s, sqllock.ID(2))
		time.Sleep(ticks)
		if got := s.Stats(); got.LossesBy["lease"] != 1 || got.Losses != 1 {
			t.Errorf("losses %v, want one by the lease", got.LossesBy)
		}
	})
}
