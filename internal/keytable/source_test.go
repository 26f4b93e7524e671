package keytable_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A source is the test itself: it prepares each batch and completes it.
type source struct {
	t      *testing.T
	table  *keytable.Table
	owner  keytable.Owner
	batch  keytable.Batch
	limits keytable.Limits
}

// withSource runs test in virtual time.
func withSource(t *testing.T, test func(*source)) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{t: t, table: newTable(), limits: keytable.Limits{Keys: 1000, Grants: 1000, Most: 1000}}
		test(s)
		s.table.Close(keytable.ErrClosed)
	})
}

// any calls AcquireAny in a goroutine.
func (s *source) any(w keytable.Want, ids ...keytable.ID) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.table.AcquireAny(s.t.Context(), w, keysOf(ids))
		done <- err
	}()
	synctest.Wait()
	return done
}

// each is levels for levels of one key.
func (s *source) each(w keytable.Want, ids ...keytable.ID) <-chan error {
	var levels [][]keytable.ID
	for _, id := range ids {
		levels = append(levels, []keytable.ID{id})
	}
	return s.levels(w, levels...)
}

// levels calls AcquireEach in a goroutine.
func (s *source) levels(w keytable.Want, levels ...[]keytable.ID) <-chan error {
	done := make(chan error, 1)
	var each []keytable.Keys
	for _, ids := range levels {
		each = append(each, keysOf(ids))
	}
	go func() {
		_, err := s.table.AcquireEach(s.t.Context(), w, each)
		done <- err
	}()
	synctest.Wait()
	return done
}

// prepare returns the keys of each look of the next batch.
func (s *source) prepare() (looks [][]int64) {
	s.table.Prepare(&s.owner, s.limits, &s.batch)
	for _, l := range s.batch.Looks {
		var keys []int64
		for _, k := range l.Keys {
			keys = append(keys, k.ID().Number)
		}
		looks = append(looks, keys)
	}
	return looks
}

// complete completes the batch, whose looks have won these places.
func (s *source) complete(won ...[]int) {
	for i := range won {
		s.batch.Looks[i].Won = won[i]
	}
	s.table.Complete(&s.owner, &s.batch, now())
	synctest.Wait()
}

// hold returns a hold of the first of these keys that is free.
func (s *source) hold(ids ...keytable.ID) (h *keytable.Hold) {
	go func() { h, _ = s.table.AcquireAny(s.t.Context(), tries, keysOf(ids)) }()
	synctest.Wait()
	s.prepare()
	s.complete([]int{0})
	return h
}

// release releases h in a goroutine.
func (s *source) release(h *keytable.Hold) {
	h.End(keytable.Released)
	go s.table.Release(h)
	synctest.Wait()
}

// fail fails the batch.
func (s *source) fail(err error) {
	s.table.Reconcile(&s.owner, &s.batch, now(), func(keytable.ID, keytable.Mode) bool { return false }, err)
}

// tried checks which keys the looks of the next batch try.
func (s *source) tried(want ...[]int64) {
	s.t.Helper()
	if got := s.prepare(); !slices.EqualFunc(got, want, slices.Equal) {
		s.t.Errorf("the looks try the keys %v, want %v", got, want)
	}
}

var (
	tries = keytable.Want{}
	waits = keytable.Want{Waits: true}
)
