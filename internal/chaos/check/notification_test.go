package check

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// How a holder from second 1 learns of a loss to a fault at 10, mended at 12.
func TestNotification(t *testing.T) {
	const row = 4
	victim := func(valid, at float64) []history.Event { return list(granted(1, 1, 0, 1), told(1, 1, 1, valid, at)) }
	cut := fault(row, 1, 10, 12)
	frozen := []Option{WithFrozen(TimesOf(list(cut), row))}
	tests := []struct {
		name   string
		events []history.Event
		opts   []Option
		want   Notification // of it the counts and Max
	}{
		{name: "nobody wants the key", events: append(victim(10.9, 11), cut), want: Notification{Locks: 1, Before: 1, Max: time.Second}},
		{name: "before the next grant", events: join(victim(10.9, 11), turn(2, 2, 12, 14), list(cut)), want: Notification{Locks: 1, Before: 1, Max: time.Second}},
		{name: "after it", events: join(victim(10.9, 13), turn(2, 2, 12, 14), list(cut)), want: Notification{Locks: 1, After: 1, Max: 3 * time.Second}},
		{
			name: "after it, on waking", events: join(victim(10, 12.4), turn(2, 2, 11, 14), list(cut)), opts: frozen,
			want: Notification{Locks: 1, Woke: 1, Max: 2400 * time.Millisecond},
		},
		{
			name: "after it, long awake", events: join(victim(10, 13), turn(2, 2, 11, 14), list(cut)), opts: frozen,
			want: Notification{Locks: 1, After: 1, Max: 3 * time.Second},
		},
		{
			name: "frozen, and valid again", events: join(victim(12.5, 13), turn(2, 2, 12, 14), list(cut)),
			opts: frozen, want: Notification{Locks: 1, After: 1, Max: 3 * time.Second},
		},
		{name: "another lost it", events: append(victim(10.9, 11), fault(row, 2, 10, 12)), want: Notification{}},
		{name: "all lost", events: append(victim(10.9, 11), fault(row, 0, 10, 12)), want: Notification{Locks: 1, Before: 1, Max: time.Second}},
		{name: "told after the next fault", events: append(victim(10.9, 15), cut, fault(kill, 1, 14, 14)), want: Notification{Locks: 1, Before: 1, Max: 5 * time.Second}},
		{name: "told after the next of the kind", events: append(victim(10.9, 15), cut, fault(row, 1, 14, 14.5)), want: Notification{Locks: 1, Before: 1, Max: 5 * time.Second}},
		{
			name: "frozen twice, and valid in between", events: append(victim(13, 15), cut, fault(row, 1, 14, 14.8)),
			opts: frozen, want: Notification{Locks: 1, Before: 1, Max: time.Second},
		},
		{name: "never told", events: list(granted(1, 1, 0, 1), held(1, 1, 1, 30), cut), want: Notification{Untold: 1}},
		{name: "given back, and lost", events: list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 10.1, 10.2, 10.3, history.Lost), cut), want: Notification{Returned: 1}},
		{
			name: "told by its context", events: list(granted(1, 1, 0, 1), listens(told(1, 1, 1, 10, 11)), cut),
			want: Notification{Locks: 1, Before: 1, Max: time.Second, Listeners: 1, Heard: time.Second},
		},
		{name: "the next fault is not on it", events: append(victim(10.9, 15), cut, fault(kill, 3, 14, 14)), want: Notification{Locks: 1, Before: 1, Max: 5 * time.Second}},
		{name: "kept", events: append(turn(1, 1, 0, 15), cut), want: Notification{Returned: 1}},
		{name: "a row that nobody asked for", events: append(victim(10.9, 11), fault(5, 1, 10, 12), cut), want: Notification{Locks: 1, Before: 1, Max: time.Second}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report := Sweep(tt.events, append(tt.opts, WithNotifications(row))...)
			if len(report.Notifications) != 1 {
				t.Fatalf("%d rows, want 1", len(report.Notifications))
			}
			got := *report.Notifications[0]
			if got.Locks != tt.want.Locks || got.Before != tt.want.Before || got.Woke != tt.want.Woke ||
				got.Returned != tt.want.Returned || got.Untold != tt.want.Untold || got.Listeners != tt.want.Listeners || got.Heard != tt.want.Heard ||
				got.After != tt.want.After || got.Max != tt.want.Max || got.InTime() != tt.want.Before+tt.want.Woke {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func listens(e history.Event) history.Event {
	e.Hold.Listens = true
	return e
}

func TestGoal(t *testing.T) {
	events := join(list(granted(1, 1, 0, 1), held(1, 1, 1, 9)), turn(2, 2, 11, 13),
		onKey(8, list(granted(1, 3, 0, 1), held(1, 3, 1, 9))), onKey(8, turn(2, 4, 12.9, 14)), list(fault(kill, 1, 10, 20)))
	report := Sweep(events, WithRecovery(kill, FromBegin, time.Minute), WithGoal(kill, 2*time.Second))
	rec := report.Recoveries[0]
	if rec.Keys != 2 || rec.Within != 1 || rec.Goal != 2*time.Second || rec.Slow() {
		t.Errorf("got %+v, want one of two keys within the goal", rec)
	}
}

// Contended calls count as troubled where they touch a time of trouble.
func TestTroubled(t *testing.T) {
	events := list(
		refused(1, 1, 3), refused(2, 2, 4), // both contended
		refused(1, 10, 11),                     // alone
		refused(1, 20, 22), refused(2, 21, 23), // both contended
	)
	for _, tt := range []struct {
		name     string
		from, to float64
		want     int
	}{
		{"before all", 0, 0.5, 0},
		{"the first of two", 0, 1.5, 1},
		{"two", 0, 2, 2},
		{"within calls", 21.5, 21.6, 2},
		{"one that is alone", 9, 12, 0},
		{"all the time", 0, 30, 4},
	} {
		report := Sweep(events, WithTrouble(sec(tt.from), sec(tt.to)))
		if report.Contended != 4 || report.Troubled != tt.want {
			t.Errorf("%s: %d of %d, want %d of 4", tt.name, report.Troubled, report.Contended, tt.want)
		}
	}
}
