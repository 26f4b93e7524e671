package keytable_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// Limits bound which stacks a batch takes. A stack stays queued, or fails.
func TestStackLimits(t *testing.T) {
	tooBig, large, beyond := errors.New("too big"), errors.New("large"), errors.New("beyond")
	for _, tt := range []struct {
		name   string
		limits keytable.Limits
		want   error // nil: the batch takes a stack of three, or it stays
		stays  bool
	}{
		{"as many keys as one request may want", keytable.Limits{Keys: 9, Grants: 9, Most: 3, TooBig: tooBig}, nil, false},
		{"fewer", keytable.Limits{Keys: 9, Grants: 9, Most: 2, TooBig: tooBig}, tooBig, false},
		{"as many keys as a statement carries", keytable.Limits{Keys: 3, Grants: 9, Most: 9}, nil, false},
		{"fewer", keytable.Limits{Keys: 2, Grants: 9, Most: 9}, nil, true},
		{"as many grants", keytable.Limits{Keys: 9, Grants: 3, Most: 9}, nil, false},
		{"fewer", keytable.Limits{Keys: 9, Grants: 2, Most: 9}, nil, true},
		{"fewer, with an error", keytable.Limits{Keys: 9, Grants: 2, Most: 9, Beyond: beyond, Large: large, Stack: 2}, large, false},
		{"fewer, and another error", keytable.Limits{Keys: 9, Grants: 2, Most: 9, Beyond: beyond}, beyond, false},
		{"as many for one stack", keytable.Limits{Keys: 9, Grants: 2, Most: 9, Beyond: beyond, Stack: 3}, nil, false},
	} {
		withSource(t, func(s *source) {
			s.limits = tt.limits
			call := s.each(tries, ids(0, 0, 3)...)
			s.prepare()
			synctest.Wait()
			taken := len(s.batch.Stacks) == 1
			if taken != (tt.want == nil && !tt.stays) || s.batch.Starved != (tt.stays && tt.limits.Keys >= 3) {
				t.Errorf("%s: the batch takes the stack: %v; starved: %v", tt.name, taken, s.batch.Starved)
			}
			if decided := len(call) > 0; decided != (tt.want != nil) {
				t.Errorf("%s: decided: %v", tt.name, decided)
			} else if err := error(nil); decided {
				if err = <-call; !errors.Is(err, tt.want) {
					t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
				}
			}
		})
	}
	withSource(t, func(s *source) { // two stacks beyond the grants, and a look
		s.limits.Grants, s.limits.Stack, s.limits.Large = 2, 3, large
		s.each(tries, ids(0, 0, 3)...)
		second := s.each(tries, ids(0, 10, 3)...)
		s.any(tries, ids(0, 20, 1)...)
		if s.tried(); len(s.batch.Stacks) != 1 || !s.batch.Starved {
			t.Errorf("the batch takes %d stacks, want 1; starved: %v", len(s.batch.Stacks), s.batch.Starved)
		}
		if synctest.Wait(); len(second) > 0 {
			t.Errorf("the second stack: %v", <-second)
		}
	})
}

// A stack that has failed with one key of each level tries its share of the
// others, as far as the statement carries them.
func TestWideStack(t *testing.T) {
	again := func(s *source, meanwhile ...keytable.ID) {
		if s.prepare(); meanwhile != nil {
			s.each(tries, meanwhile...)
		}
		for i := range s.batch.Stacks {
			s.batch.Stacks[i].Failed = 0
		}
		s.complete()
		s.prepare()
	}
	withSource(t, func(s *source) {
		s.limits.Keys = 7
		s.levels(tries, ids(0, 0, 10), ids(0, 20, 10))
		again(s, ids(0, 50, 1)...)
		if levels := s.batch.Stacks[1].Levels; len(levels[0]) != 5 || len(levels[1]) != 1 {
			t.Errorf("the stack tries %d and %d keys besides that of another, want 5 and 1", len(levels[0]), len(levels[1]))
		}
	})
	withSource(t, func(s *source) {
		s.levels(tries, ids(0, 0, 11))
		s.levels(tries, ids(0, 0, 11))
		again(s)
		if got := len(s.batch.Stacks[0].Levels[0]); got != 5 {
			t.Errorf("the first of two stacks tries %d of 9 keys, want 5", got)
		}
	})
	for range 100 { // orders of the keys
		withSource(t, func(s *source) {
			s.each(waits, ids(0, 1, 1)...)
			again(s) // another session holds the key
			s.levels(tries, []keytable.ID{{Number: 0}, {Number: 2}}, ids(0, 1, 2))
			again(s)
			tried := make(map[keytable.ID]bool)
			for _, k := range slices.Concat(s.batch.Stacks[0].Levels...) {
				if tried[k.ID()] {
					t.Fatalf("the statement tries key %d twice", k.ID().Number)
				}
				tried[k.ID()] = true
			}
		})
	}
}

// A stack whose call has ended meanwhile is not tried again.
func TestStackFailsTooLate(t *testing.T) {
	withSource(t, func(s *source) {
		s.each(tries, ids(0, 0, 1)...)
		s.prepare()
		s.table.Expire(now(), func() error { return context.DeadlineExceeded })
		s.batch.Stacks[0].Failed = 0
		if s.complete(); s.table.Figures().Queued {
			t.Error("something is queued")
		}
	})
}

// A stack neither overtakes an older request for one of its keys, nor fails
// because of it. It fails at once if a caller holds the only key of a level.
func TestStackBehindARequest(t *testing.T) {
	withSource(t, func(s *source) {
		older := s.any(tries, ids(0, 0, 1)...)
		stack := s.each(tries, ids(0, 0, 2)...)
		if s.tried([]int64{0}); len(s.batch.Stacks) != 0 || len(stack) != 0 {
			t.Errorf("the batch takes %d stacks; %d are decided", len(s.batch.Stacks), len(stack))
		}
		s.complete([]int{0})
		if err := <-older; err != nil {
			t.Error(err)
		}
		s.tried()
		var full *keytable.FullError
		if err := <-stack; !errors.As(err, &full) || full.Level != 0 {
			t.Errorf("the stack: %v", err)
		}
		if next := s.each(tries, ids(0, 0, 2)...); len(next) != 1 {
			t.Error("the next stack is not decided at once")
		}
	})
	withSource(t, func(s *source) {
		s.each(tries, ids(0, 0, 2)...)
		s.any(tries, ids(0, 0, 1)...)
		if s.tried(); len(s.batch.Stacks) != 1 {
			t.Error("the batch does not take the older stack")
		}
	})
}

// A request that only tries does not stand behind one that waits. A reader joins
// readers that wait.
func TestTryBehindAWaiter(t *testing.T) {
	shared := func(waits bool) keytable.Want { return keytable.Want{Mode: keytable.Shared, Waits: waits} }
	for _, tt := range []struct {
		first, second keytable.Want
		rejected      bool
	}{
		{waits, tries, true},
		{waits, shared(false), true},
		{shared(true), tries, true},
		{shared(true), shared(false), false},
		{tries, tries, false},
	} {
		withSource(t, func(s *source) {
			id := ids(0, 0, 1)[0]
			s.any(tt.first, id)
			second := s.any(tt.second, id)
			if rejected := len(second) == 1; rejected != tt.rejected {
				t.Errorf("%+v behind %+v: rejected at once: %v", tt.second, tt.first, rejected)
			}
		})
	}
}

// The error of a request that has waited says why it got no key, unless other
// holders are the reason.
func TestWaitSaysWhy(t *testing.T) {
	failed := errors.New("failed")
	for _, why := range []error{nil, failed} {
		withSource(t, func(s *source) {
			ctx, cancel := context.WithCancel(s.t.Context())
			done := make(chan error, 2)
			go func() {
				_, err := s.table.Acquire(ctx, waits, keytable.ID{})
				done <- err
			}()
			go func() {
				_, err := s.table.AcquireEach(ctx, waits, []keytable.Keys{keysOf(ids(0, 1, 1))})
				done <- err
			}()
			synctest.Wait()
			if s.prepare(); why != nil {
				s.fail(why)
			} else {
				s.batch.Stacks[0].Failed = 0
				s.complete(nil)
			}
			cancel()
			for range 2 {
				if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, failed) != (why != nil) {
					t.Errorf("%v after %v", err, why)
				}
			}
		})
	}
}
