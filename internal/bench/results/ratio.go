package results

import "slices"

// A Figure is one of a Round's.
type Figure func(Round) float64

// Rate is operations per second.
func Rate(r Round) float64 { return r.Rate }

// P50 is the median latency, in seconds.
func P50(r Round) float64 { return r.P50.Seconds() }

// P99 is the 99th percentile of the latency, in seconds.
func P99(r Round) float64 { return r.P99.Seconds() }

// ClientCPU is the client's processor time of an operation, in seconds.
func ClientCPU(r Round) float64 { return r.ClientCPU.Seconds() }

// ServerCPU is the server's.
func ServerCPU(r Round) float64 { return r.ServerCPU.Seconds() }

// CPU is the client's and the server's together.
func CPU(r Round) float64 { return (r.ClientCPU + r.ServerCPU).Seconds() }

// Extra is the figure called name that only some scenarios have.
func Extra(name string) Figure { return func(r Round) float64 { return r.Extra[name] } }

// A Spread is a figure over the rounds.
type Spread struct {
	Median, Min, Max float64
	Rounds           int // 0: it was not measured
}

// Spread is a figure of s; s may be nil.
func (s *Series) Spread(f Figure) Spread {
	if s == nil {
		return Spread{}
	}
	values := make([]float64, len(s.Rounds))
	for i, r := range s.Rounds {
		values[i] = f(r)
	}
	return spread(values)
}

// Ratio is a figure of s divided by that of other, round by round, since the
// rounds of both with the same index ran right after each other. Either may be
// nil.
func (s *Series) Ratio(other *Series, f Figure) Spread {
	if s == nil || other == nil {
		return Spread{}
	}
	var values []float64
	for i := range min(len(s.Rounds), len(other.Rounds)) {
		if divisor := f(other.Rounds[i]); divisor > 0 {
			values = append(values, f(s.Rounds[i])/divisor)
		}
	}
	return spread(values)
}

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	middle := len(values) / 2
	median := values[middle]
	if len(values)%2 == 0 {
		median = (values[middle-1] + values[middle]) / 2
	}
	return Spread{Median: median, Min: values[0], Max: values[len(values)-1], Rounds: len(values)}
}

// Fastest is the series with the highest median rate of those of a scenario at
// x whose contender is one of names, or nil.
func (r *Results) Fastest(scenario string, x int, names []string) (fastest *Series) {
	for _, s := range r.Series {
		if s.Scenario != scenario || s.X != x || !slices.Contains(names, s.Contender) {
			continue
		}
		if fastest == nil || s.Spread(Rate).Median > fastest.Spread(Rate).Median {
			fastest = s
		}
	}
	return fastest
}
