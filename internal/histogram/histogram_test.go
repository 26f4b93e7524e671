package histogram_test

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/histogram"
)

// A value is counted in the first bucket whose bound is not less.
func TestObserve(t *testing.T) {
	t.Parallel()
	tests := []struct {
		bounds *histogram.Bounds
		value  int64
		want   float64 // the bound of its bucket
	}{
		{histogram.Seconds, 0, 0.0005},
		{histogram.Seconds, -1, 0.0005},
		{histogram.Seconds, int64(500 * time.Microsecond), 0.0005},
		{histogram.Seconds, int64(500*time.Microsecond) + 1, 0.001},
		{histogram.Seconds, int64(75 * time.Millisecond), 0.075},
		{histogram.Seconds, int64(time.Second), 1},
		{histogram.Seconds, int64(5 * time.Minute), 300},
		{histogram.Seconds, int64(5*time.Minute) + 1, math.Inf(1)},
		{histogram.Seconds, math.MaxInt64, math.Inf(1)},
		{histogram.Keys, 0, 0},
		{histogram.Keys, 1, 1},
		{histogram.Keys, 3, 4},
		{histogram.Keys, 512, 512},
		{histogram.Keys, 513, math.Inf(1)},
	}
	for _, tt := range tests {
		h := histogram.New(tt.bounds)
		h.Observe(tt.value)
		s := h.Snapshot()
		i := slices.Index(s.Counts, 1)
		got := math.Inf(1)
		if i >= 0 && i < len(s.Bounds) {
			got = s.Bounds[i]
		}
		if i < 0 || got != tt.want || s.Count != 1 {
			t.Errorf("%d is counted below %v, %d values in all; want %v and 1", tt.value, got, s.Count, tt.want)
		}
	}
}

// The caller may change what it gets.
func TestSnapshotIsACopy(t *testing.T) {
	t.Parallel()
	h := histogram.New(histogram.Keys)
	h.Snapshot().Bounds[0] = 77
	if got := h.Snapshot().Bounds[0]; got != 0 {
		t.Errorf("the first bound is %v, want 0", got)
	}
}

// Nothing is lost among goroutines.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	h := histogram.New(histogram.Keys)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range int64(1000) {
				h.Observe(i)
			}
		})
	}
	wg.Wait()
	if s := h.Snapshot(); s.Count != 8000 || s.Sum != 8*999*500 || s.Counts[len(s.Counts)-1] != 8*(1000-513) {
		t.Errorf("%d values with sum %v, %v; want 8000 and %d", s.Count, s.Sum, s.Counts, 8*999*500)
	}
}
