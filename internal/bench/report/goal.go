package report

import (
	"math"

	"github.com/latchkey-go/latchkey/internal/bench/locks"
	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// The variants that goals are about.
const (
	HeldByDefault   = "a connection for each thousand held"
	NothingElseHeld = "no lock held by others"
	ThousandHeld    = "1,000 locks held"
	HoldersApart    = "on a connection of its own"

	StackOfUser  = "one level: one request per user"
	StackOfTotal = "one level: 600 in all"
	StackOfThree = "three levels: per user, per tenant and in all"
)

// Limiter is the contender of the scenario of metrics.
const Limiter = "a limiter on latchkey, pgx"

// A goal is a target of the project for one figure: a floor that must hold, and
// the goal that we work towards. A ratio is taken within a round, in which both
// sides ran shortly after each other.
//
// Goals are for the project's own use. Print lists them after the tables.
type goal struct {
	what        string
	floor, goal float64
	less        bool // less is better
	always      bool // it must hold in each round, not in the median
	unit        unit
	measure     func(*results.Results) results.Spread
}

// A status says how a figure compares with its goal.
type status string

const (
	goalMet     status = "goal met"
	floorMet    status = "floor met"
	floorMissed status = "floor not met"
	notMeasured status = "not measured"
)

// statusOf compares the median, or the worst round, with floor and goal.
func (g *goal) statusOf(s results.Spread) status {
	figure := s.Median
	switch {
	case g.always && g.less:
		figure = s.Max
	case g.always:
		figure = s.Min
	}
	reached := func(bound float64) bool {
		if g.less {
			return figure <= bound
		}
		return figure >= bound
	}
	switch {
	case s.Rounds == 0:
		return notMeasured
	case reached(g.goal):
		return goalMet
	case reached(g.floor):
		return floorMet
	}
	return floorMissed
}

func ratio(scenario string, x int, contender, against string, f results.Figure) func(*results.Results) results.Spread {
	return func(r *results.Results) results.Spread {
		return r.Find(scenario, contender, "", x).Ratio(r.Find(scenario, against, "", x), f)
	}
}

func figure(scenario string, x int, contender, variant string, f results.Figure) func(*results.Results) results.Spread {
	return func(r *results.Results) results.Spread { return r.Find(scenario, contender, variant, x).Spread(f) }
}

// toFastestRedis is a figure of the kit against the Redis client that was the
// fastest there, of all of them or of those at their library's defaults.
func toFastestRedis(scenario string, x int, f results.Figure, which clients) func(*results.Results) results.Spread {
	return func(r *results.Results) results.Spread {
		return r.Find(scenario, locks.KitPgx, "", x).Ratio(r.Fastest(scenario, x, which.names()), f)
	}
}

// clients says which Redis clients count.
type clients struct {
	what  string
	tuned bool // those too that were tuned by hand
}

func (c clients) names() (names []string) {
	for _, contender := range locks.All() {
		if contender.Family == locks.Redis && (c.tuned || contender.Name != locks.RueidisTuned) {
			names = append(names, contender.Name)
		}
	}
	return names
}

// whereMeasured is a figure of both processors' time, and 0, of which no ratio
// is made, where the server's cannot be read.
func whereMeasured(f results.Figure) results.Figure {
	return func(r results.Round) float64 {
		if r.ServerCPU == 0 {
			return 0
		}
		return f(r)
	}
}

// wholeAllocs is allocations of one operation as testing.B counts them: what
// other goroutines allocate meanwhile is a fraction of one.
func wholeAllocs(name string) results.Figure {
	return func(r results.Round) float64 { return math.Trunc(r.Extra[name]) }
}

// bound is a floor or a goal with its direction.
func (g *goal) bound(v float64) string {
	if g.less {
		return "≤ " + g.unit(v)
	}
	return "≥ " + g.unit(v)
}
