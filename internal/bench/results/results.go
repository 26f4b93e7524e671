// Package results is what was measured, in a form that can be kept, compared
// and drawn.
package results

import "time"

// Results is one run of the benchmarks.
type Results struct {
	Machine  Machine
	Versions map[string]string // of servers and modules
	Settings map[string]string // of the servers, where they differ from the defaults
	Started  time.Time
	Took     time.Duration
	Quick    bool
	Series   []*Series
}

// Machine is where they ran.
type Machine struct {
	CPU    string
	Cores  int
	Memory uint64 // bytes
	OS     string
	Go     string
}

// A Series is one contender at one point of one scenario, measured once in
// each round. Rounds with the same index were run right after each other, so
// ratios are taken within a round, and their median is given.
type Series struct {
	Scenario  string // "pairs", "held", "fleet", …
	Contender string
	Variant   string // "hot keys", "refused"; or empty
	X         int    // what the scenario varies: callers, locks held, sessions
	Rounds    []Round
}

// A Round is one measurement.
type Round struct {
	Rate      float64       // operations done per second
	P50, P99  time.Duration // of an operation
	ClientCPU time.Duration // per operation
	ServerCPU time.Duration // per operation
	Errors    int64
	Extra     map[string]float64 // what only one scenario has
}

// Find is the series of a scenario, or nil.
func (r *Results) Find(scenario, contender, variant string, x int) *Series {
	for _, s := range r.Series {
		if s.Scenario == scenario && s.Contender == contender && s.Variant == variant && s.X == x {
			return s
		}
	}
	return nil
}
