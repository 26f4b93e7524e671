package sqllock

import (
	"errors"
	"testing"
)

// ids returns the keys of numbers.
func ids(numbers ...int64) (keys []Key) {
	for _, n := range numbers {
		keys = append(keys, ID(n))
	}
	return keys
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
