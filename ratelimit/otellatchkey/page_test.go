package otellatchkey_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// pageRow is a row of the table of instruments on docs/metrics.md: the
// instrument, its unit and kind, and the metric of Prometheus.
var pageRow = regexp.MustCompile("(?m)^\\| `(latchkey\\.[a-z._]+)` \\| (\\S+), ([a-z -]+) \\| `(latchkey_\\w+)` \\|")

// docs/metrics.md lists every instrument with its unit and kind, the name that
// OpenTelemetry's rules make of it, and how many data points there are.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range pageRow.FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = row[2] + ", " + row[3] + ", " + row[4]
	}
	s := start(t).(subject)
	locks := dbtest.Session(t, "pgx", pgtest.Database(t))
	lockertest.Eventually(t, "the Session knows its lock table", func() bool { return locks.Stats().TableSize > 0 })
	s.Session("main", locks)
	s.SessionObserver("main").Exchanged(time.Millisecond, 1)
	s.Limiter(ratelimit.OneAtATime(locks, "export"))
	s.Observe(t.Context(), ratelimit.Event{Namespace: "export", Result: ratelimit.Released, Held: 1})
	s.Observe(t.Context(), ratelimit.Event{Namespace: "export", Result: ratelimit.Admitted, Waited: 1})
	s.Campaign("nightly", election.New(locks, sqllock.ID(1)))

	points := map[string]int{}
	for _, m := range collect(t, s.reader) {
		kind, n := kindOf(m.Data)
		points[strings.Split(m.Name, ".")[1]] += n
		if want := m.Unit + ", " + kind + ", " + prometheusName(m); rows[m.Name] != want {
			t.Errorf("%s is %q, on the page %q", m.Name, want, rows[m.Name])
		}
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
		delete(rows, m.Name)
	}
	for name := range rows {
		t.Errorf("the page lists %s, which is not collected", name)
	}
	for of, what := range map[string]string{"limiter": "limiter", "session": "Session", "campaign": "Campaign", "watch": "process"} {
		if row := regexp.MustCompile(fmt.Sprintf(`\n\| %s \| \d+ \| %d \|\n`, what, points[of])); !row.Match(page) {
			t.Errorf("the page has not the row %s", row)
		}
	}
}

// kindOf returns the kind of an instrument in the words of the page, and its data
// points.
func kindOf(data metricdata.Aggregation) (kind string, points int) {
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			return "counter", len(data.DataPoints)
		}
		return "up-down counter", len(data.DataPoints)
	case metricdata.Gauge[float64]:
		return "gauge", len(data.DataPoints)
	case metricdata.Histogram[float64]:
		return "histogram", len(data.DataPoints)
	}
	return "unknown", 0
}
