package campaign

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

const ms = history.Moment(time.Millisecond)

// grant is a lock of key 1 with its Try; the moments are milliseconds.
func grant(process int, lock int64, from, valid, told, ended history.Moment, unlock history.Result) []history.Event {
	return []history.Event{
		{Try: &history.Try{Process: process, Key: 1, Lock: lock, Begin: from*ms - 10, End: from*ms - 5, Result: history.OK}},
		{Hold: &history.Hold{
			Process: process, Key: 1, Lock: lock, From: from * ms, Valid: valid * ms, Told: told * ms, Ended: ended * ms,
			UnlockBegin: max(valid, told) * ms, Unlock: unlock,
		}},
	}
}

func fault(row, process int, begin, end history.Moment) history.Event {
	return history.Event{Fault: &history.Fault{Row: row, Process: process, Begin: begin * ms, End: end * ms}}
}

// judged is what the campaign makes of a history of sessions with a lease of 1 s.
func judged(events []history.Event) (overlaps []check.Overlap, early []Early, err error) {
	x := explain(events, time.Second)
	early, err = x.measure(check.Sweep(events).Overlaps)
	report := check.Sweep(x.believed(events))
	x.told(report)
	if err == nil {
		err = report.Err()
	}
	if err == nil {
		_, err = check.Linearize(x.believed(events), time.Minute)
	}
	return report.Overlaps, early, err
}

func TestEarly(t *testing.T) {
	stale := grant(1, 11, 10, 130, 131, 132, history.Lost) // lost to something at 100, told at 131
	later := grant(2, 21, 110, 150, 0, 160, history.OK)
	tests := []struct {
		name   string
		events [][]history.Event
		ok     bool
		early  time.Duration // that two were valid at once
	}{
		{"no fault", [][]history.Event{stale, later}, false, 0},
		{"terminated", [][]history.Event{stale, later, {fault(13, 1, 100, 102)}}, true, 20 * time.Millisecond},
		{"another was terminated", [][]history.Event{stale, later, {fault(13, 3, 100, 102)}}, false, 0},
		{"a fault whose locks the lease covers", [][]history.Event{stale, later, {fault(4, 1, 100, 102)}}, false, 0},
		{"terminated after the overlap", [][]history.Event{stale, later, {fault(13, 1, 120, 122)}}, false, 20 * time.Millisecond},
		{"told too late", [][]history.Event{
			grant(1, 11, 10, 330, 331, 332, history.Lost), later, {fault(13, 1, 100, 102)},
		}, false, 40 * time.Millisecond},
		{"half-open, handed on and given back", [][]history.Event{
			grant(1, 11, 10, 120, 0, 121, history.OK), grant(1, 12, 122, 140, 0, 145, history.OK), later, {fault(7, 1, 100, 400)},
		}, true, 18 * time.Millisecond},
		{"half-open, believed after it was known", [][]history.Event{
			grant(1, 11, 10, 430, 0, 440, history.OK), grant(2, 21, 410, 450, 0, 460, history.OK), {fault(7, 1, 100, 400)},
			grant(1, 12, 445, 470, 0, 480, history.OK),
		}, false, 20 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var events []history.Event
			for _, some := range tt.events {
				events = append(events, some...)
			}
			overlaps, early, err := judged(events)
			if (err == nil) != tt.ok {
				t.Errorf("judged %v, %v; want ok %v", overlaps, err, tt.ok)
			}
			var longest time.Duration
			for _, e := range early {
				longest = max(longest, e.Longest)
			}
			if longest != tt.early {
				t.Errorf("two believed for %v, want %v", longest, tt.early)
			}
		})
	}
}
