package simulation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A process whose machine was suspended past the lease sees the loss as soon as
// it calls Err, before any timer has fired and before a response. The lease counts
// from the moment at which the statement was sent: the server may count from then.
func TestSuspend(t *testing.T) {
	for _, slow := range []time.Duration{0, 500 * time.Millisecond} {
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			st.conn(0).hooks(nil, func() error { time.Sleep(slow); return nil })
			lock := mustTry(t, s, sqllock.ID(1))
			bound, cancel := lock.Bind(t.Context())
			defer cancel()
			st.link.asleep.Add(int64(trust - slow - 1))
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
