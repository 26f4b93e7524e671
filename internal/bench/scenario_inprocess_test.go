package main

import (
	"testing"
	"time"
)

func TestBenchmarkRound(t *testing.T) {
	r := benchmarkRound(testing.BenchmarkResult{N: 4, T: 2 * time.Second, MemAllocs: 10, MemBytes: 100})
	if r.Rate != 2 || r.P50 != 500*time.Millisecond {
		t.Errorf("%v a second of %v each, want 2 of 500ms", r.Rate, r.P50)
	}
	want := map[string]float64{"ns": 5e8, "allocs": 2.5, "bytes": 25}
	for figure, value := range want {
		if r.Extra[figure] != value {
			t.Errorf("%s = %v, want %v", figure, r.Extra[figure], value)
		}
	}
}
