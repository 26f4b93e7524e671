// Package histogram counts values by how large they are. It is for figures of
// hot paths: to count a value takes two atomic operations, no lock and no
// allocation.
package histogram

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// maxBounds bounds the bounds, so that a Histogram is one piece of memory.
const maxBounds = 20

// A Bounds is a set of upper bounds, each of which belongs to its bucket. The
// last bucket has none.
type Bounds struct {
	units []int64   // ascending: what Observe compares with
	shown []float64 // the same, as a Snapshot shows them
	unit  float64   // units / unit is what a Snapshot shows
}

var (
	// Seconds are bounds for durations from half a millisecond to five minutes.
	// From 5 ms to 10 s they are those that OpenTelemetry advises for seconds.
	// Observe takes the nanoseconds.
	Seconds = bounds(float64(time.Second), 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
		0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300)

	// Keys are bounds for the number of keys in a statement.
	Keys = bounds(1, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
)

// bounds returns the bounds shown, which are multiples of 1/unit.
func bounds(unit float64, shown ...float64) *Bounds {
	b := &Bounds{unit: unit, shown: shown}
	for _, s := range shown {
		b.units = append(b.units, int64(s*unit))
	}
	return b
}

// A Histogram counts values by the bounds with which [New] made it. Its methods
// are safe for concurrent use.
type Histogram struct {
	bounds *Bounds
	counts [maxBounds + 1]atomic.Uint64
	sum    atomic.Uint64 // the bits of a float64, in units: nanoseconds of many holds at once soon exceed 63 bits
}

// New returns an empty Histogram. It panics if b has too many bounds.
func New(b *Bounds) *Histogram {
	if len(b.units) > maxBounds {
		panic("histogram: too many bounds")
	}
	return &Histogram{bounds: b}
}

// Observe counts value, in the unit of the bounds. It allocates nothing.
func (h *Histogram) Observe(value int64) {
	i, _ := slices.BinarySearch(h.bounds.units, value)
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+float64(value))) {
			return
		}
	}
}

// A Snapshot is what a Histogram has counted until a moment.
type Snapshot struct {
	Bounds []float64 // ascending; a value that equals a bound is in its bucket
	Counts []uint64  // by bucket, one more than Bounds
	Count  uint64    // the sum of Counts
	Sum    float64   // of the values; it may be ahead of Counts, or behind, by those that are being counted
}

// Snapshot returns what h has counted. The caller may change it.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{
		Bounds: slices.Clone(h.bounds.shown),
		Counts: make([]uint64, len(h.bounds.shown)+1),
		Sum:    math.Float64frombits(h.sum.Load()) / h.bounds.unit,
	}
	for i := range s.Counts {
		s.Counts[i] = h.counts[i].Load()
		s.Count += s.Counts[i]
	}
	return s
}
