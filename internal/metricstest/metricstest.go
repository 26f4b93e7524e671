// Package metricstest is the suite of the packages that show figures to
// monitoring systems. It causes each event for real, on PostgreSQL and with both
// drivers, and looks for its figure under its Prometheus name. A package's own
// tests run it with
//
//	metricstest.Run(t, func(t *testing.T) metricstest.Subject { … })
package metricstest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A Subject is what shows the figures.
type Subject interface {
	Limiter(l *ratelimit.Limiter) (remove func())
	Session(name string, s *sqllock.Session) (remove func())
	Campaign(name string, c *election.Campaign) (remove func())
	Finding(f lockwatch.Finding)

	// LimiterOptions and SessionOptions are what a limiter and a Session need,
	// so that all their figures are shown.
	LimiterOptions() []ratelimit.Option
	SessionOptions(name string) []sqllock.Option

	// Exposition returns all figures in Prometheus's text format. The labels
	// of a series are in the order of their names.
	Exposition(t *testing.T) string
}

// Run runs the suite. start returns a Subject that shows nothing yet.
func Run(t *testing.T, start func(t *testing.T) Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) Subject)
	}{
		{"Results", results},
		{"HoldAndQueue", holdAndQueue},
		{"SameNamespace", sameNamespace},
		{"Session", session},
		{"Findings", findings},
		{"Campaign", campaign},
		{"Cardinality", cardinality},
		{"Remove", remove},
		{"Misuse", misuse},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, start)
		})
	}
}

// figures are the values of an exposition by series.
type figures map[string]float64

// read returns the figures of s at this moment.
func read(t *testing.T, s Subject) figures {
	t.Helper()
	f := figures{}
	for line := range strings.Lines(s.Exposition(t)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("the exposition has the line %q", line)
		}
		if _, ok := f[line[:at]]; ok {
			t.Fatalf("the exposition has the series %s twice", line[:at])
		}
		f[line[:at]] = value
	}
	return f
}

// sum adds up the series whose text begins with prefix.
func (f figures) sum(prefix string) (sum float64) {
	for series, value := range f {
		if strings.HasPrefix(series, prefix) {
			sum += value
		}
	}
	return sum
}

// want checks the values of series, which must be there.
func want(t *testing.T, s Subject, values figures) {
	t.Helper()
	f := read(t, s)
	for series, value := range values {
		if got, ok := f[series]; !ok || got != value {
			t.Errorf("%s is %v (there: %v), want %v", series, got, ok, value)
		}
	}
}

// eventually waits until series has the value.
func eventually(t *testing.T, s Subject, series string, value float64) {
	t.Helper()
	eventuallyIs(t, s, series+" is "+strconv.FormatFloat(value, 'g', -1, 64), func(f figures) bool {
		got, ok := f[series]
		return ok && got == value
	})
}

// eventuallyIs waits until the figures are as ok wants them.
func eventuallyIs(t *testing.T, s Subject, what string, ok func(figures) bool) {
	t.Helper()
	lockertest.Eventually(t, what, func() bool { return ok(read(t, s)) })
}
