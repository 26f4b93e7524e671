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
	for _, k := range b.Release {
		i := slices.Index(s.held, k)
		if b.NotHeld = i < 0; !b.NotHeld {
			s.held = slices.Delete(s.held, i, i+1)
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
			Looks: []Look{{Keys: []Key{k(1), k(2)}, Want: 2}},
			Stacks: []Stack{
				{Levels: [][]Key{{k(3), k(4)}, {k(5)}}},
				{Levels: [][]Key{{k(6)}, {k(7)}, {k(8)}}},
				{Levels: [][]Key{{k(9)}, {k(10)}, {k(11)}}},
			},
		}
	}
	s := &keysOfOthers{others: []Key{k(1), k(3), k(7), k(9), k(11)}}
	b := batch()
	if err := InParts(b, s.exchange); err != nil {
		t.Fatal(err)
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
	if want := []Key{k(2), k(4), k(5)}; !slices.Equal(s.held, want) || s.calls != 2 {
		t.Errorf("after %d calls the session holds %v, want %v", s.calls, s.held, want)
	}
	s = &keysOfOthers{}
	if err := InParts(batch(), s.exchange); err != nil || s.calls != 1 || len(s.held) != 10 {
		t.Errorf("all keys are free: %v, %d calls, %d keys", err, s.calls, len(s.held))
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
