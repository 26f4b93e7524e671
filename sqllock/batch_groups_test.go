package sqllock

import (
	"errors"
	"testing"
)

// Calls that try for the same slots at once share them in one statement.
func TestSlotsAreShared(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		slots := []Key{ID(1), ID(2), ID(3), ID(4)}
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		var calls []<-chan called
		for range 6 {
			calls = append(calls, begin(func() (*Lock, error) { return s.TryAny(background, slots...) }))
		}
		resume()
		_ = returned(t, "blocker", blocker)
		granted, refused := 0, 0
		for _, c := range calls {
			switch got := returned(t, "TryAny", c); {
			case got.err == nil:
				granted++
			case errors.Is(got.err, ErrHeld):
				refused++
			default:
				t.Errorf("TryAny: %v", got.err)
			}
		}
		if granted != 4 || refused != 2 {
			t.Errorf("%d granted, %d refused of 4 slots and 6 callers", granted, refused)
		}
		if n := len(db.sent()); n != 2 {
			t.Errorf("%d statements, want 2", n)
		}
	})
}

// Keys of both key spaces cannot go into one group. The keys that are left out
// are requested next.
func TestLockAnyOfBothKeySpaces(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		server.steal(ID(2))
		lock, err := s.LockAny(background, ID(1), ID(2), Pair(1, 1))
		if err != nil || lock.Key() != Pair(1, 1) {
			t.Fatalf("LockAny: %v", err)
		}
	})
}

// Groups and single keys that do not fit into one statement go into the next. A
// group that is larger than any statement is denied.
func TestRoomOfAStatement(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.carry(4)
		db := server.session(0)
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		var calls []<-chan called
		for i := range int64(3) { // three keys each: two groups do not fit together
			calls = append(calls, begin(func() (*Lock, error) { return s.TryAny(background, ID(10*i), ID(10*i+1), ID(10*i+2)) }))
		}
		for i := range int64(6) {
			calls = append(calls, beginTry(background, s, ID(100+i)))
		}
		tooMany := begin(func() (*Lock, error) { return s.TryAny(background, ID(51), ID(52), ID(53), ID(54), ID(55)) })
		resume()
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		for _, c := range calls {
			wantErr(t, "one of many", returned(t, "TryLock or TryAny", c), nil)
		}
		wantErr(t, "five keys of four", returned(t, "TryAny", tooMany), ErrCapacity)
		for i, b := range db.sent() {
			keys := len(b.Release) + len(b.Try)
			for _, g := range b.Any {
				keys += len(g)
			}
			if keys > 4 {
				t.Errorf("statement %d carries %d keys, of 4", i, keys)
			}
		}
	})
}
