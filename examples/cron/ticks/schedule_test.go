package ticks

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // a machine may have none

	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/robfig/cron/v3"
)

// parse parses a cron expression with seconds.
func parse(tb testing.TB, expression string) cron.Schedule {
	tb.Helper()
	fields := cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor
	s, err := cron.NewParser(fields).Parse(expression)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

var expressions = []string{
	"* * * * * *", "*/7 * * * * *", "* * * * *", "*/5 9-17 * * 1-5", "* * 3 * * *", "30 1 * * *", "30 2 * * *",
	"0 0 1 * *", "0 12 29 2 *", "@hourly", "0 3 * * 0",
}

// The latest tick is the last of those that the schedule counts up, also where
// the clocks are put forward and back.
func TestLatestTick(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York"} {
		for _, expression := range expressions {
			s := parse(t, "CRON_TZ="+zone+" "+expression)
			for _, day := range []time.Time{
				time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC),
				time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
			} {
				now := day.Add(time.Duration(random.Int64N(int64(24 * time.Hour))))
				got, ok := latestTick(s, now)
				if !ok || got.After(now) || !s.Next(got).After(now) || !s.Next(got.Add(-1)).Equal(got) {
					t.Errorf("%s %s at %v: %v, %t; then %v", zone, expression, now, got, ok, s.Next(got))
				}
			}
		}
	}
}

// Instances that run a job at different moments mean the same tick, which is
// not any of these moments.
func TestTickFor(t *testing.T) {
	t.Parallel()
	second := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	tests := []struct {
		name string
		s    Schedule
		now  time.Duration // after second
		want time.Duration
	}{
		{"on time", parse(t, "* * * * * *"), 0, 0},
		{"a little late", parse(t, "* * * * * *"), 400 * time.Millisecond, 0},
		{"nearly the next", parse(t, "* * * * * *"), 950 * time.Millisecond, time.Second},
		{"a timer that is early", parse(t, "* * * * * *"), -5 * time.Millisecond, 0},
		{"a daily timer that is early", parse(t, "CRON_TZ=UTC 0 3 * * *"), -800 * time.Millisecond, 0},
		{"a daily timer that is another's", parse(t, "CRON_TZ=UTC 0 3 * * *"), -2 * time.Second, -24 * time.Hour},
		{"interval", Every(5 * time.Second), 4 * time.Second, 0},
		{"interval, by an instance that started later", Every(5 * time.Second), 1300 * time.Millisecond, 0},
		{"@every", common(parse(t, "@every 5s")), 3 * time.Second, 0},
		{"short interval", Every(100 * time.Millisecond), 250 * time.Millisecond, 200 * time.Millisecond},
	}
	for _, tt := range tests {
		got, ok := tickFor(tt.s, second.Add(tt.now))
		if !ok || !got.Equal(second.Add(tt.want)) {
			t.Errorf("%s: %v, %t, want %v", tt.name, got, ok, second.Add(tt.want))
		}
	}
}

// An instance that comes once in an interval, at a whole second and by timers
// that are some milliseconds early or late, means each tick once, at whatever
// second it has started.
func TestTickForEachOnce(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	jitter := []int{0, 3, -4, -3, 5, -2, 4} // milliseconds
	for _, every := range []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute, time.Hour} {
		for second := time.Duration(0); second < min(every, time.Minute); second += time.Second {
			var last time.Time
			for i, j := range jitter {
				now := start.Add(every - second + time.Duration(i)*every + time.Duration(j)*time.Millisecond)
				tick, ok := tickFor(Every(every), now)
				if !ok || i > 0 && !tick.Equal(last.Add(every)) {
					t.Fatalf("every %v, %v before the multiple: tick %v at %v, after %v", every, second, tick, now, last)
				}
				last = tick
			}
		}
	}
}

// fromStart is a schedule whose ticks count from when it is asked.
type fromStart struct{}

func (fromStart) Next(t time.Time) time.Time { return t.Add(90 * time.Minute) }

func TestMisuse(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(){
		"no schedule":           func() { common(nil) },
		"schedule from a start": func() { common(fromStart{}) },
		"no interval":           func() { Every(0) },
		"no locks":              func() { New(nil, nil, "cron") },
	} {
		t.Run(name, func(t *testing.T) { httptesting.WantPanic(t, "cron", "", f) })
	}
}
