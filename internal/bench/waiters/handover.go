package waiters

import (
	"cmp"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/latchkey-go/latchkey/internal/bench/load"
)

// A hold is one lock from the request to its release, in nanoseconds of the
// wall clock, which all processes of a machine share.
type hold struct {
	Key                      int
	Asked, Granted, Released int64
}

// handOvers returns the times from a release in one process to the grant in
// another. holds has those of each process. A grant counts if its caller waited
// when the key was released.
func handOvers(holds [][]hold) *hdrhistogram.Histogram {
	type ofProcess struct {
		hold
		process int
	}
	var all []ofProcess
	for process, list := range holds {
		for _, h := range list {
			all = append(all, ofProcess{h, process})
		}
	}
	slices.SortFunc(all, func(a, b ofProcess) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	took := load.NewHistogram()
	for i := 1; i < len(all); i++ {
		before, h := all[i-1], all[i]
		if h.Key == before.Key && h.process != before.process && h.Asked < before.Released {
			_ = took.RecordValue(max(h.Granted-before.Released, 1))
		}
	}
	return took
}
