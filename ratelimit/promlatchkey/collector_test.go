package promlatchkey_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/metricstest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/ratelimit/promlatchkey"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// A subject is a Collector under test, with a registry of its own. A pedantic
// registry compares what is collected with what is described.
type subject struct {
	*promlatchkey.Collector
	registry *prometheus.Registry
}

func start(t *testing.T) metricstest.Subject {
	t.Helper()
	s := subject{promlatchkey.New(), prometheus.NewPedanticRegistry()}
	if err := s.registry.Register(s.Collector); err != nil {
		t.Fatal(err)
	}
	return s
}

func (subject) LimiterOptions() []ratelimit.Option     { return nil }
func (subject) SessionOptions(string) []sqllock.Option { return nil }

func (s subject) Exposition(t *testing.T) string {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestCollector(t *testing.T) { metricstest.Run(t, start) }

// The buckets of limiters of one namespace are added up, and each has the values
// below its bound.
func TestBuckets(t *testing.T) {
	t.Parallel()
	s := start(t)
	for range 2 {
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
		s.Limiter(l)
		lock, err := l.Acquire(t.Context(), "ada")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	text := s.Exposition(t)
	for _, bucket := range []string{`le="300"} 2`, `le="+Inf"} 2`} {
		if want := `latchkey_limiter_lease_duration_seconds_bucket{limiter="export",` + bucket + "\n"; !strings.Contains(text, want) {
			t.Errorf("the exposition has not the line %s\n%s", want, text)
		}
	}
}

// The names and texts follow Prometheus's rules.
func TestLint(t *testing.T) {
	t.Parallel()
	c := promlatchkey.New()
	c.Limiter(ratelimit.OneAtATime(sqllock.NewMemory(), "export"))
	c.Campaign("nightly", election.New(sqllock.NewMemory(), sqllock.ID(1)))
	problems, err := testutil.CollectAndLint(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}
