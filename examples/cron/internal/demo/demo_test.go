package demo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The result goes by the rows: it finds what locks and marks are there to prevent.
func TestResult(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	row := "INSERT INTO cron_example_runs_test (job, tick, instance, began, ended) VALUES ('slow', '2026-11-21T03:00:0"
	events := []event{
		{began, 1, Slow, at, "", 0, 0},
		{working, 1, Slow, at, "", 0, 0},
		{began, 2, Slow, at.Add(time.Second), "", 0, 0},
		{working, 2, Slow, at.Add(time.Second), "", 0, 0},
	}
	for name, tt := range map[string]struct {
		rows []string
		want string // in the error
	}{
		"right":    {[]string{"0Z', 1, '2026-11-21 03:00', '2026-11-21 03:01')", "1Z', 2, '2026-11-21 03:01', NULL)"}, ""},
		"twice":    {[]string{"0Z', 1, '2026-11-21 03:00', '2026-11-21 03:01')", "0Z', 2, '2026-11-21 03:02', NULL)"}, "run twice"},
		"at once":  {[]string{"0Z', 1, '2026-11-21 03:00', '2026-11-21 03:02')", "1Z', 2, '2026-11-21 03:01', NULL)"}, "two runs at once"},
		"one lost": {[]string{"0Z', 1, '2026-11-21 03:00', '2026-11-21 03:01')"}, "reported 2"},
		"nothing":  {nil, "the database has 0 runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Open(t, "pgx", pgtest.Database(t))
			dbtest.Execute(t, db, fmt.Sprintf(runsTable, runsName("test")))
			for _, r := range tt.rows {
				dbtest.Execute(t, db, row+r)
			}
			var out bytes.Buffer
			err := printResult(t.Context(), &out, &database{db: db, demo: "test"}, events, &fleet{})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// Of the ticks that no instance ran, those are missed that no run kept from being
// run.
func TestMissed(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	after := func(n int) time.Time { return at.Add(time.Duration(n) * 2 * time.Second) }
	run := func(n, outlived int) []event {
		return []event{{began, 1, Slow, after(n), "", 0, 0}, {worked, 1, Slow, after(n), "", 0, 0}, {ended, 1, Slow, after(n), "", 0, outlived}}
	}
	rejection := func(n int, why string) []event { return []event{{rejected, 2, Slow, after(n), why, 0, 0}} }
	for name, tt := range map[string]struct {
		told [][]event
		want int
	}{
		"each run":                      {[][]event{run(0, 0), rejection(0, passed), run(1, 0)}, 0},
		"held by an instance that left": {[][]event{run(0, 0), rejection(1, held), run(2, 0)}, 1},
		"outlived":                      {[][]event{run(0, 2), rejection(1, held), rejection(2, held), run(3, 0)}, 0},
		"outlived, and another":         {[][]event{run(0, 1), rejection(1, held), rejection(2, held), run(3, 0)}, 1},
		"killed":                        {[][]event{run(0, 0)[:1], rejection(1, held), rejection(2, held), run(3, 0)}, 1},
		"before and after all":          {[][]event{rejection(0, held), run(1, 0), rejection(2, held)}, 0},
	} {
		if n := missed(slices.Concat(tt.told...)); n != tt.want {
			t.Errorf("%s: %d missed, want %d", name, n, tt.want)
		}
	}
}

func TestPrintTicks(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	printTicks(&out, []event{
		{began, 1, Slow, at, "", 0, 0},
		{rejected, 3, Slow, at, passed, 0, 0},
		{rejected, 2, Slow, at, passed, 0, 0},
		{rejected, 2, Slow, at.Add(2 * time.Second), held, 0, 0},
		{worked, 1, Slow, at, "", 0, 0},
		{ended, 1, Slow, at, "", 5 * time.Second, 2},
		{began, 2, Slow, at.Add(4 * time.Second), "", 0, 0},
	})
	for _, want := range []string{
		"03:00:00   1 (outlived 2 ticks)   passed: 2 3\n",
		"03:00:02   -                      held: 2\n",
		"03:00:04   2 (killed)             \n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in %s", want, out.String())
		}
	}
}
