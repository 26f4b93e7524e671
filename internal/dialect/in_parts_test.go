package dialect

import (
	"errors"
	"slices"
	"testing"
)

// keysOfOthers are a session beside one that holds them.
type keysOfOthers struct {
	others, held []Key
	calls        int
	fails        int // the call that fails; 0: none
	loses        int // the call before which the session loses its keys; 0: none
}

var errFails = errors.New("fails")

func (s *keysOfOthers) exchange(b *Batch) error {
	s.calls++
	if len(b.Stacks) > 0 {
		return errors.New("the batch has stacks")
	}
	if s.calls == s.fails {
		return errFails
	}
	if s.calls == s.loses {
		s.held = nil
	}
	for _, k := range b.Release {
		if i := slices.Index(s.held, k); i >= 0 {
			s.held = slices.Delete(s.held, i, i+1)
		} else {
			b.NotHeld = true
		}
	}
	for _, k := range b.Try {
		if slices.Contains(s.others, k) {
			b.Busy = append(b.Busy, k)
		} else {
			s.held = append(s.held, k)
		}
	}
	for i := range b.Looks {
		l := &b.Looks[i]
		for place, k := range l.Keys {
			if !slices.Contains(s.others, k) && l.Take(place) {
				s.held = append(s.held, k)
			}
		}
	}
	return nil
}

func TestInParts(t *testing.T) {
	t.Parallel()
	k := func(id int64) Key { return Key{ID: id} }
	batch := func() *Batch {
		return &Batch{
			Release: []Key{k(20)},
			Try:     []Key{k(21), k(22)},
			Looks:   []Look{{Keys: []Key{k(1), k(2)}, Want: 2}},
			Stacks: []Stack{
				{Levels: [][]Key{{k(3), k(4)}, {k(5)}}},
				{Levels: [][]Key{{k(6)}, {k(7)}, {k(8)}}},
				{Levels: [][]Key{{k(9)}, {k(10)}, {k(11)}}},
			},
		}
	}
	s := &keysOfOthers{others: []Key{k(1), k(3), k(7), k(9), k(11), k(22)}, held: []Key{k(20)}}
	b := batch()
	if err := InParts(b, s.exchange); err != nil || b.NotHeld || !slices.Equal(b.Busy, []Key{k(22)}) {
		t.Fatalf("%v; it held not all: %v; busy are %v", err, b.NotHeld, b.Busy)
	}
	if !slices.Equal(b.Looks[0].Won, []int{1}) {
		t.Errorf("the look has taken the keys %v, want its second", b.Looks[0].Won)
	}
	if w := b.Stacks[0]; !slices.Equal(w.Won, []int{1, 0}) || w.Failed != -1 {
		t.Errorf("the first stack has %v, and failed at level %d", w.Won, w.Failed)
	}
	for i, level := range []int{1, 0} {
		if w := b.Stacks[1+i]; len(w.Won) > 0 || w.Failed != level {
			t.Errorf("stack %d has %v, and failed at level %d, want %d", 1+i, w.Won, w.Failed, level)
		}
	}
	if want := []Key{k(21), k(2), k(4), k(5)}; !slices.Equal(s.held, want) || s.calls != 2 {
		t.Errorf("after %d calls the session holds %v, want %v", s.calls, s.held, want)
	}
	s, b = &keysOfOthers{}, batch()
	if err := InParts(b, s.exchange); err != nil || s.calls != 1 || len(s.held) != 12 || !b.NotHeld {
		t.Errorf("all keys are free: %v, %d calls, %d keys; the key to release was held: %v", err, s.calls, len(s.held), !b.NotHeld)
	}
	s = &keysOfOthers{others: []Key{k(7)}, loses: 2}
	if err := InParts(batch(), s.exchange); err != ErrNonsense {
		t.Errorf("the keys of a stack are lost before the second call: %v", err)
	}
	for call := 1; call <= 2; call++ {
		s := &keysOfOthers{others: []Key{k(7)}, fails: call}
		if err := InParts(batch(), s.exchange); err != errFails {
			t.Errorf("call %d fails: %v", call, err)
		}
	}
	s = &keysOfOthers{}
	if err := InParts(&Batch{Release: []Key{k(1)}, Looks: []Look{{}}}, s.exchange); err != nil || s.calls != 1 {
		t.Errorf("a batch without stacks: %v, %d calls", err, s.calls)
	}
}
