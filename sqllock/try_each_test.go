package sqllock

import (
	"errors"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// ids returns the keys of numbers.
func ids(numbers ...int64) (keys []Key) {
	for _, n := range numbers {
		keys = append(keys, ID(n))
	}
	return keys
}

// One key of each group is acquired, or none.
func TestTryEach(t *testing.T) {
	tests := []struct {
		name   string
		held   []Key
		groups [][]Key
		beyond [][]int64
		full   int // the group that is full, or -1
	}{
		{"all free", nil, [][]Key{ids(1), ids(2, 3)}, nil, -1},
		{"one group", nil, [][]Key{ids(1, 2, 3)}, nil, -1},
		{"second key", ids(2), [][]Key{ids(1), ids(2, 3)}, nil, -1},
		{"first group full", ids(1), [][]Key{ids(1), ids(2, 3)}, nil, 0},
		{"last group full", ids(2, 3), [][]Key{ids(1), ids(2, 3)}, nil, 1},
		{"the same key twice", ids(2), [][]Key{ids(1), ids(2, 3, 3, 2)}, nil, -1},
		{"beyond, free", nil, [][]Key{ids(1, 2)}, [][]int64{{3, 4}}, -1},
		{"beyond, held once", ids(3), [][]Key{ids(1, 2)}, [][]int64{{3, 4}}, -1},
		{"beyond, held twice", ids(3, 4), [][]Key{ids(1, 2)}, [][]int64{{3, 4}}, 0},
		{"beyond, and a key held", ids(1, 3), [][]Key{ids(1, 2)}, [][]int64{{3, 4}}, 0},
		{"beyond of the second group", ids(8), [][]Key{ids(1), ids(2)}, [][]int64{nil, {8}}, 1},
		{"beyond is longer than groups", ids(8), [][]Key{ids(1)}, [][]int64{{7}, {8}}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMemory()
			for _, key := range tt.held {
				if _, err := m.TryLock(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: tt.beyond})
			locks, err := m.TryEach(ctx, tt.groups)
			var full *GroupError
			switch {
			case tt.full < 0 && err != nil:
				t.Fatal(err)
			case tt.full >= 0 && (!errors.As(err, &full) || full.Group != tt.full || !errors.Is(err, ErrHeld)):
				t.Fatalf("got %v, want a GroupError for %d", err, tt.full)
			}
			for i, lock := range locks {
				if !slices.Contains(tt.groups[i], lock.Key()) || lock.Err() != nil {
					t.Errorf("lock %d is not of its group, or not held", i)
				}
			}
			if held := m.table.held; held != len(tt.held)+len(locks) {
				t.Errorf("%d keys are held, want %d", held, len(tt.held)+len(locks))
			}
			if err := locks.Unlock(); err != nil || m.table.keys.len() != len(tt.held) {
				t.Errorf("after Unlock: %v, %d key states", err, m.table.keys.len())
			}
		})
	}
}

// Groups that make no sense are an error, which is not ErrHeld.
func TestTryEachBadGroups(t *testing.T) {
	tests := []struct {
		name   string
		groups [][]Key
		want   error
	}{
		{"none", nil, errNoGroups},
		{"empty", [][]Key{ids(1), {}}, errEmptyGroup},
		{"a key in two", [][]Key{ids(1, 2), ids(3, 2)}, errTwoGroups},
		{"a pair", [][]Key{{Pair(1, 1)}}, errPairGroups},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMemory()
			if _, err := m.TryEach(t.Context(), tt.groups); !errors.Is(err, tt.want) || errors.Is(err, ErrHeld) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if m.table.keys.len() != 0 {
				t.Error("a key is left in the table")
			}
		})
	}
}
