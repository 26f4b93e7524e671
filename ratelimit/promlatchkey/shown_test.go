package promlatchkey_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/instruments"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// emitted are the series of a Collector with one of each, and their names,
// labels and label values.
type emitted struct {
	series        []string
	names, values map[string]bool // a value stands as label=value
}

func emit(t *testing.T) emitted {
	t.Helper()
	s := start(t).(subject)
	locks := dbtest.Session(t, "pgx", pgtest.Database(t))
	lockertest.Eventually(t, "the Session knows its lock table", func() bool { return locks.Stats().TableSize > 0 })
	s.Session("main", locks)
	s.Limiter(ratelimit.OneAtATime(locks, "export"))
	s.Campaign("nightly", election.New(locks, sqllock.ID(1)))

	e := emitted{names: map[string]bool{}, values: map[string]bool{}}
	for line := range strings.Lines(s.Exposition(t)) {
		if line[0] == '#' {
			continue
		}
		series, _, _ := strings.Cut(line, " ")
		e.series = append(e.series, series)
		name, labels, _ := strings.Cut(series, "{")
		e.names[name] = true
		for _, m := range matcher.FindAllStringSubmatch(labels, -1) {
			e.values[m[1]+"="+m[3]] = true
		}
	}
	return e
}

var (
	metricName = regexp.MustCompile(`\blatchkey_\w+`)
	matcher    = regexp.MustCompile(`(\w+)\s*(=~?)\s*"([^"]*)"`)
	alertName  = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	alertExpr  = regexp.MustCompile(`(?ms)^        expr: (.*?)\n        (?:for|labels):`)
)

// check checks that expr asks for what the Collector emits: a metric's name, and
// a label's value if it is not a variable or chosen by the caller.
func (e emitted) check(t *testing.T, where, expr string) {
	t.Helper()
	names := metricName.FindAllString(expr, -1)
	if len(names) == 0 {
		t.Errorf("%s asks for no metric: %s", where, expr)
	}
	for _, name := range names {
		if !e.names[name] {
			t.Errorf("%s: the Collector does not emit %s", where, name)
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
		if strings.HasPrefix(m[3], "$") {
			continue
		}
		for value := range strings.SplitSeq(m[3], "|") {
			if !e.values[m[1]+"="+value] {
				t.Errorf("%s: the Collector emits no label %s=%q", where, m[1], value)
			}
		}
	}
}

// A panel is a panel of dashboard.json.
type panel struct {
	Title, Type, Description string
	Targets                  []struct{ Expr string }
}

type dashboard struct {
	Templating struct {
		List []struct{ Query any }
	}
	Panels []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every metric of the Collector is on the dashboard, and everything that the
// dashboard asks for is emitted.
func TestDashboard(t *testing.T) {
	t.Parallel()
	e, d := emit(t), readDashboard(t)
	shown := ""
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("the panel %q is not complete", p.Title)
		}
		for _, target := range p.Targets {
			e.check(t, p.Title, target.Expr)
			shown += target.Expr + "\n"
		}
	}
	for _, v := range d.Templating.List {
		if query := fmt.Sprint(v.Query); strings.Contains(query, "latchkey") {
			e.check(t, "a variable", query)
		}
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for name := range e.names {
		if name = suffix.ReplaceAllString(name, ""); !strings.Contains(shown, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// Everything that the rules ask for is emitted. Each alert has a test, and an
// entry on the page to which it leads.
func TestAlerts(t *testing.T) {
	t.Parallel()
	e, rules, tests, page := emit(t), readFile(t, "alerts.yml"), readFile(t, "alerts_test.yml"), readFile(t, "../../docs/metrics.md")
	alerts, exprs := alertName.FindAllStringSubmatch(rules, -1), alertExpr.FindAllStringSubmatch(rules, -1)
	if len(alerts) != 9 || len(exprs) != len(alerts) {
		t.Fatalf("%d alerts and %d expressions", len(alerts), len(exprs))
	}
	for i, alert := range alerts {
		name := alert[1]
		e.check(t, name, exprs[i][1])
		if !strings.Contains(tests, `alertname="`+name+`"`) {
			t.Errorf("no test expects %s", name)
		}
		if !strings.Contains(page, "\n### "+name+"\n") || !strings.Contains(rules, "docs/metrics.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s does not lead to an entry of docs/metrics.md", name)
		}
	}
	for _, series := range metricName.FindAllString(tests, -1) {
		if !e.names[series] {
			t.Errorf("alerts_test.yml has a series of %s, which the Collector does not emit", series)
		}
	}
}

// pageRow is a row of the table of instruments on docs/metrics.md: the
// instrument, its unit and kind, the metric and its labels.
var pageRow = regexp.MustCompile("(?m)^\\| `(latchkey\\.[a-z._]+)` \\| (\\S+), ([a-z -]+) \\| `(latchkey_\\w+)` \\| ([^|]+) \\|")

// docs/metrics.md lists the instruments, what the Collector emits for each, and
// how many series that are.
func TestPage(t *testing.T) {
	t.Parallel()
	e, page := emit(t), readFile(t, "../../docs/metrics.md")
	kinds := []string{instruments.Counter: "counter", instruments.UpDown: "up-down counter", instruments.Gauge: "gauge", instruments.Histogram: "histogram"}
	want := map[string]string{}
	for _, i := range instruments.Table() {
		want["latchkey."+i.Name] = i.Unit + ", " + kinds[i.Kind]
	}
	listed := map[string]bool{}
	for _, row := range pageRow.FindAllStringSubmatch(page, -1) {
		name, labels := row[4], strings.NewReplacer("`", "", " ", "").Replace(row[5])
		listed[name] = true
		if got := row[2] + ", " + row[3]; got != want[row[1]] {
			t.Errorf("%s is %q on the page, want %q", row[1], got, want[row[1]])
		}
		if row[3] == "histogram" {
			name += "_count"
		}
		found := ""
		for _, series := range e.series {
			if of, pairs, _ := strings.Cut(series, "{"); of == name {
				found = matcher.ReplaceAllString(strings.TrimSuffix(pairs, "}"), "$1")
			}
		}
		if found != labels {
			t.Errorf("%s has the labels %q, on the page %q", name, found, labels)
		}
	}
	for label := range e.values {
		name, value, _ := strings.Cut(label, "=")
		if slices.Contains([]string{"result", "cause", "kind", "state"}, name) && !strings.Contains(page, "`"+value+"`") {
			t.Errorf("the page does not list the value %q of the label %s", value, name)
		}
	}
	suffix, counts := regexp.MustCompile(`_(bucket|sum|count)$`), map[string]int{}
	for _, series := range e.series {
		name, _, _ := strings.Cut(series, "{")
		if name = suffix.ReplaceAllString(name, ""); !listed[name] {
			t.Errorf("the page does not list %s", name)
		}
		counts[strings.Split(name, "_")[1]]++
	}
	for of, what := range map[string]string{"limiter": "limiter", "session": "Session", "campaign": "Campaign", "watch": "process"} {
		if row := fmt.Sprintf("\n| %s | %d | ", what, counts[of]); !strings.Contains(page, row) {
			t.Errorf("the page has not the row %q", row)
		}
	}
}

// The program promtool tests the rules. Without it the test is skipped: the tests
// above need none.
func TestRules(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: it is in Debian's package prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
