package keytable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A batch brings as many keys as its requests want, within the limits.
func TestBatchBrings(t *testing.T) {
	withSource(t, func(s *source) {
		s.any(tries, ids(0, 0, 5)...)
		s.any(tries, ids(0, 0, 5)...)
		s.any(tries, ids(0, 10, 1)...)
		s.any(tries, ids(0, 11, 1)...)
		s.each(tries, ids(0, 20, 2)...)
		s.each(tries, ids(0, 22, 3)...)
		s.prepare()
		if got, want := s.batch.Brings(), 2+1+1+2+3; got != want || s.batch.Looks[0].Want != 2 || s.batch.Starved {
			t.Errorf("the batch brings %d keys, want %d; starved: %v", got, want, s.batch.Starved)
		}
	})
	withSource(t, func(s *source) {
		s.limits.Grants = 2
		for i := range 3 {
			s.any(tries, ids(0, i, 1)...)
		}
		s.tried([]int64{0}, []int64{1})
		if got := s.batch.Brings(); got != 2 || !s.batch.Starved {
			t.Errorf("the batch brings %d keys, want 2; starved: %v", got, s.batch.Starved)
		}
	})
}

// A look tries few keys of a large group, and the rest only if those were not
// enough. Of a small group it tries all, in order.
func TestNarrowLook(t *testing.T) {
	const narrow, all = 64, 400
	withSource(t, func(s *source) {
		s.any(tries, ids(0, 0, narrow)...)
		if got := s.prepare()[0]; len(got) != narrow || !slices.IsSorted(got) {
			t.Errorf("a look of %d keys tries %v", narrow, got)
		}
		s.complete([]int{1}) // another session holds the first
		s.any(tries, ids(0, 0, narrow)...)
		if got := s.prepare()[0]; len(got) != narrow-1 || !slices.IsSorted(got) {
			t.Errorf("the next look of %d keys tries %v", narrow, got)
		}
	})
	for _, enough := range []bool{true, false} {
		withSource(t, func(s *source) {
			s.any(waits, ids(0, 0, all)...)
			s.any(waits, ids(0, 0, all)...)
			if got := len(s.prepare()[0]); got != narrow+2*2 {
				t.Errorf("the first look tries %d keys, want %d", got, narrow+2*2)
			}
			s.any(waits, ids(0, 0, all)...)
			want, won := narrow+2, []int{0, 1}
			if !enough {
				want, won = all-(narrow+2*2), won[:1]
			}
			s.complete(won)
			if got := len(s.prepare()[0]); got != want {
				t.Errorf("the second look tries %d keys, want %d; enough: %v", got, want, enough)
			}
		})
	}
}

// A key that a look has not tried, because others were enough, was not seen held.
func TestKeyBehindTheWonOnes(t *testing.T) {
	withSource(t, func(s *source) {
		either, second := s.any(tries, ids(0, 0, 2)...), s.any(tries, ids(0, 1, 1)...)
		s.tried([]int64{0, 1})
		s.complete([]int{0})
		if err := <-either; err != nil || len(second) > 0 {
			t.Fatalf("the first call got %v, and %d other calls are decided", err, len(second))
		}
		s.tried([]int64{1})
		s.complete([]int{0})
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// A look that is too small for its group goes on with the keys that are left, and
// a batch that is too small for all groups with the groups that are left.
func TestLookInParts(t *testing.T) {
	for _, calls := range [][][]keytable.ID{{ids(0, 0, 3)}, {ids(0, 0, 1), ids(0, 1, 1), ids(0, 2, 1)}} {
		withSource(t, func(s *source) {
			s.limits.Keys = 1
			var last <-chan error
			for _, keys := range calls {
				last = s.any(tries, keys...)
			}
			for key := range int64(3) {
				s.tried([]int64{key})
				s.complete(nil)
			}
			if err := <-last; !errors.Is(err, keytable.ErrHeld) {
				t.Error(err)
			}
		})
	}
}

// What waits is polled for: keys that are held elsewhere at once, and those of a
// statement that has failed after a pause.
func TestPolls(t *testing.T) {
	withSource(t, func(s *source) {
		s.any(waits, ids(0, 0, 1)...)
		s.each(waits, ids(0, 1, 2)...)
		s.prepare()
		s.batch.Stacks[0].Failed = 0
		s.complete(nil)
		s.tried() // the stack has no other keys
		s.complete()
		if s.batch.Polls != 2 {
			t.Errorf("%d calls are polled for, want 2", s.batch.Polls)
		}
		if left := s.table.Poll(); left != 0 || !s.table.Figures().Queued {
			t.Errorf("%d calls are left; something is queued: %v", left, s.table.Figures().Queued)
		}
		s.prepare()
		s.fail(errors.New("away"))
		time.Sleep(keytable.AwayFor - time.Millisecond)
		if left := s.table.Poll(); left != 2 || s.table.Polls() != 2 || s.table.Figures().Queued {
			t.Errorf("a poll that comes too early leaves %d calls, want 2; something is queued: %v", left, s.table.Figures().Queued)
		}
		time.Sleep(time.Millisecond)
		if s.table.Poll(); s.prepare() == nil || len(s.batch.Stacks) != 1 {
			t.Errorf("a poll tries %d looks and %d stacks", len(s.batch.Looks), len(s.batch.Stacks))
		}
	})
	withSource(t, func(s *source) { // a call that only tries, for the key of a stack that waits
		s.each(waits, ids(0, 0, 1)...)
		s.prepare()
		s.fail(errors.New("away"))
		s.any(tries, ids(0, 0, 1)...)
		s.tried([]int64{0})
		if s.fail(errors.New("away")); s.batch.Polls != 1 {
			t.Errorf("%d calls are polled for, want the stack alone", s.batch.Polls)
		}
		s.any(waits, ids(0, 0, 1)...)
		s.tried([]int64{0})
	})
}

// A key that this process has kept for as long as it may rests, although callers
// wait for it.
func TestKeyRests(t *testing.T) {
	withSource(t, func(s *source) {
		first := s.hold(keytable.ID{})
		second := s.any(waits, keytable.ID{})
		time.Sleep(time.Second) // HandOver
		s.release(first)
		s.tried()
		s.complete()
		for _, rest := range []time.Duration{time.Second - 1, 1} { // YieldFor
			if s.tried(); len(second) > 0 {
				t.Fatal("the key was handed over")
			}
			time.Sleep(rest)
			s.table.Poll()
		}
		s.tried([]int64{0})
	})
}

// A key does not rest if no call waits for it, however long this process has had
// it. Nor does it if this process has just got it again.
func TestKeyDoesNotRest(t *testing.T) {
	withSource(t, func(s *source) {
		either := ids(0, 0, 2)
		first := s.hold(either...)
		s.hold(either...)           // keeps the group on the table
		time.Sleep(2 * time.Second) // more than HandOver
		s.release(first)
		s.tried()
		s.complete()
		s.release(s.hold(either...))
		s.tried()
		s.any(waits, either[0])
		s.complete()
		s.tried([]int64{0})
	})
}

// A key is orphaned while no call waits for the statement that tries it or gives
// it back.
func TestOrphanedKey(t *testing.T) {
	withSource(t, func(s *source) {
		orphaned := func(step string, want bool) {
			t.Helper()
			if got := s.table.IsOrphaned(keytable.ID{}); got != want {
				t.Errorf("%s: orphaned: %v", step, got)
			}
		}
		orphaned("not on the table", false)
		s.any(tries, keytable.ID{})
		s.prepare()
		orphaned("under way", false)
		s.table.Expire(now(), func() error { return context.DeadlineExceeded })
		orphaned("under way without its call", true)
		s.complete([]int{0})
		orphaned("to be given back", true)
		s.prepare()
		s.complete()
		hold := s.hold(keytable.ID{})
		orphaned("held", false)
		s.release(hold)
		orphaned("to be given back by a call", false)
		s.prepare()
		s.complete()
	})
}

// The view of a key has the name of a hold that has one.
func TestViewHasAName(t *testing.T) {
	withSource(t, func(s *source) {
		go s.table.Acquire(s.t.Context(), keytable.Want{Mode: keytable.Shared}, keytable.ID{})
		synctest.Wait()
		s.prepare()
		s.complete([]int{0})
		s.table.AllHolds()[0].Holder.(*holder).name = "ada"
		s.table.Each(&s.owner, func(v keytable.View) {
			if v.Name != "ada" || !v.Settled || v.Mode != keytable.Shared {
				t.Errorf("%+v", v)
			}
		})
	})
}
