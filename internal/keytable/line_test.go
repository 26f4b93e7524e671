package keytable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A key goes to the call that came first, in whichever line it is.
func TestFirstOfAllLines(t *testing.T) {
	for _, groupFirst := range []bool{false, true} {
		withSource(t, func(s *source) {
			one, some := ids(0, 0, 1), ids(0, 0, 2)
			if groupFirst {
				one, some = some, one
			}
			hold := s.hold(keytable.ID{})
			first, second := s.any(waits, one...), s.any(waits, some...)
			s.release(hold)
			if len(first) != 1 || len(second) != 0 {
				t.Errorf("the key went to the second call; the first is for %d keys", len(one))
			}
		})
	}
}

// A request that only tries is rejected once a call from another line has got
// the last key that it could get.
func TestRejectedByAnotherLine(t *testing.T) {
	for _, groupFirst := range []bool{false, true} {
		withSource(t, func(s *source) {
			one, some := ids(0, 0, 1), ids(0, 0, 2)
			if groupFirst {
				one, some = some, one
			}
			other := &source{t: t, table: s.table, limits: s.limits}
			first := s.any(tries, one...)
			other.prepare()
			second := s.any(tries, some...)
			if s.prepare(); len(s.batch.Looks) > 0 {
				s.complete(nil)
			}
			if len(second) > 0 {
				t.Fatalf("the second call: %v", <-second)
			}
			other.complete([]int{0})
			if len(first) != 1 || len(second) != 1 {
				t.Errorf("%d and %d calls are decided, want 1 and 1", len(first), len(second))
			}
		})
	}
}

// A request that only tries does not try a key for which another line waits. That
// holds, too, after one of its own line has waited.
func TestTryAfterAWaiter(t *testing.T) {
	withSource(t, func(s *source) {
		s.hold(ids(0, 2, 1)...)
		s.any(waits, ids(0, 0, 1)...)
		s.prepare()
		s.complete(nil) // another session holds the key
		ctx, leave := context.WithCancel(s.t.Context())
		go s.table.AcquireAny(ctx, waits, keysOf(ids(0, 0, 3)))
		synctest.Wait()
		leave()
		synctest.Wait()
		s.any(tries, ids(0, 0, 3)...)
		s.tried([]int64{1})
	})
}

// A lifeline that has ended, for now.
type ended bool

func (e *ended) Expired() bool { return bool(*e) }
func (e *ended) Over() bool    { return bool(*e) }
func (*ended) LoseLease()      {}

// A reader does not join readers whose holds may have ended, and is not rejected
// because of them. It joins them with the next reader that comes while their
// holds are certain again. The database may be away by then.
func TestReaderOfAnExpiredKey(t *testing.T) {
	withSource(t, func(s *source) {
		reads, id := keytable.Want{Mode: keytable.Shared}, ids(0, 0, 1)[0]
		s.any(reads, id)
		s.tried([]int64{0})
		s.complete([]int{0})
		life := ended(true)
		s.owner.Life = &life
		second := s.any(reads, id)
		if len(second) > 0 {
			t.Fatalf("the second reader got %v", <-second)
		}
		life = false
		s.any(reads, id)
		if synctest.Wait(); len(second) != 1 || <-second != nil {
			t.Error("the second reader is not admitted with the third")
		}
		s.table.SetAway(errors.New("away"))
		if err := <-s.any(reads, id); err != nil {
			t.Errorf("a reader that needs no database: %v", err)
		}
		s.table.SetAway(nil)
		life = true
		second = s.any(reads, id)
		lost := errors.New("lost")
		s.table.Lose(&s.owner, &s.batch, lost)
		synctest.Wait()
		other := &source{t: t, table: s.table, limits: s.limits}
		other.tried([]int64{0})
		other.complete([]int{0})
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}
