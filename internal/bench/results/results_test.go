package results

import "testing"

func rates(values ...float64) *Series {
	s := &Series{Scenario: "pairs", X: 8}
	for _, v := range values {
		s.Rounds = append(s.Rounds, Round{Rate: v})
	}
	return s
}

func TestRatio(t *testing.T) {
	tests := []struct {
		name string
		a, b *Series
		want Spread
	}{
		// The median of ratios, not the ratio of medians, which is 1.
		{"by rounds", rates(10, 20, 90), rates(5, 20, 30), Spread{Median: 2, Min: 1, Max: 3, Rounds: 3}},
		{"an even number", rates(1, 2), rates(1, 1), Spread{Median: 1.5, Min: 1, Max: 2, Rounds: 2}},
		{"a round is missing", rates(4, 4), rates(2), Spread{Median: 2, Min: 2, Max: 2, Rounds: 1}},
		{"nothing done", rates(4), rates(0), Spread{}},
		{"not measured", rates(4), nil, Spread{}},
		{"no rounds", rates(), rates(), Spread{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.a.Ratio(tt.b, Rate); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestFastest(t *testing.T) {
	slow, fast, other := rates(1, 9, 1), rates(2, 2, 2), rates(100)
	slow.Contender, fast.Contender, other.Contender = "slow", "fast", "other"
	elsewhere := rates(100)
	elsewhere.Contender, elsewhere.X = "fast", 64
	r := &Results{Series: []*Series{slow, fast, other, elsewhere}}
	if got := r.Fastest("pairs", 8, []string{"slow", "fast"}); got != fast {
		t.Errorf("got %+v, want fast", got)
	}
	if got := r.Fastest("pairs", 512, []string{"slow", "fast"}); got != nil {
		t.Errorf("got %+v, want nil", got)
	}
}
