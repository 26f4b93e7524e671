package sqllock

import (
	"slices"
	"testing"
)

// Keys that are equal in the database count once, in the order of the caller,
// however many there are. The two key spaces are apart.
func TestDistinctKeys(t *testing.T) {
	for _, n := range []int{2, narrowGroup + 1, 600} {
		var want []Key
		for i := range int64(n) {
			want = append(want, ID(int64(n)-i), Pair(0, int32(i)))
		}
		if got := distinctKeys(append(slices.Clone(want), want...)); !slices.Equal(got, want) {
			t.Errorf("%d keys, want %d", len(got), len(want))
		}
	}
}
