package campaign

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
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

func onKey(key int64, events []history.Event) []history.Event {
	for _, e := range events {
		if e.Try != nil {
			e.Try.Key = key
		}
		if e.Hold != nil {
			e.Hold.Key = key
		}
	}
	return events
}

func fault(row, process int, begin, end history.Moment) history.Event {
	return history.Event{Fault: &history.Fault{Row: row, Process: process, Begin: begin * ms, End: end * ms}}
}

// Two locks may be valid at once for as long as the news of the end of a session
// takes, and no longer.
func TestWindow(t *testing.T) {
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
		{"a fault whose locks the lease covers", [][]history.Event{stale, later, {fault(4, 1, 100, 102)}}, false, 0},
		{"told too late", [][]history.Event{
			grant(1, 11, 10, 1700, 1701, 1702, history.Lost), later, {fault(13, 1, 100, 102)},
		}, false, 0},
		{"granted long after a reset", [][]history.Event{
			grant(1, 11, 500, 530, 531, 532, history.Lost), grant(2, 21, 510, 550, 0, 560, history.OK), {fault(8, 1, 100, 102)},
		}, false, 0},
		{"given back without an answer", [][]history.Event{
			grant(1, 11, 10, 130, 0, 132, history.Unavailable), later, {fault(13, 1, 100, 102)},
		}, true, 20 * time.Millisecond},
		{"told at first sight, after the others", [][]history.Event{
			grant(1, 11, 120, 0, 121, 122, history.Lost), later, {fault(13, 1, 100, 102)}, onKey(2, grant(1, 12, 10, 109, 110, 111, history.Lost)),
		}, true, 0},
		{"a lost reply, from the moment it was lost", [][]history.Event{
			grant(1, 11, 10, 930, 931, 932, history.Lost), grant(2, 21, 910, 950, 0, 960, history.OK), {fault(11, 1, 900, 902)},
		}, true, 20 * time.Millisecond},
		{"an orderly restart, of which another process was told first", [][]history.Event{
			stale, later, {fault(31, 0, 100, 102)}, onKey(2, grant(3, 31, 10, 109, 110, 111, history.Lost)),
		}, true, 20 * time.Millisecond},
		{"terminated, and the server is slow", [][]history.Event{
			grant(1, 11, 10, 430, 431, 432, history.Lost), grant(2, 21, 410, 450, 0, 460, history.OK), {fault(13, 1, 100, 102)},
		}, true, 20 * time.Millisecond},
		{"reset, which the server is not asked for", [][]history.Event{
			grant(1, 11, 10, 430, 431, 432, history.Lost), grant(2, 21, 410, 450, 0, 460, history.OK), {fault(8, 1, 100, 102)},
		}, false, 0},
		{"reset, and its holder goes on", [][]history.Event{
			grant(1, 11, 10, 430, 0, 440, history.OK), grant(2, 21, 410, 450, 0, 460, history.OK), {fault(8, 1, 100, 102)},
		}, false, 0},
		{"two locks of one process", [][]history.Event{
			stale, grant(1, 21, 110, 150, 0, 160, history.OK), {fault(13, 1, 100, 102)},
		}, false, 0},
		{"granted to the victim, and held by another since before", [][]history.Event{
			grant(1, 11, 105, 130, 131, 132, history.Lost), grant(2, 21, 50, 150, 0, 160, history.OK), {fault(13, 1, 100, 102)},
			onKey(2, grant(1, 12, 10, 109, 120, 121, history.Lost)),
		}, false, 0},
		{"half-open, two locks of one process", [][]history.Event{
			grant(1, 11, 10, 140, 0, 141, history.OK), grant(1, 12, 122, 145, 0, 150, history.OK), {fault(7, 1, 100, 400)},
		}, false, 0},
		{"beside a third one, which is another matter", [][]history.Event{
			stale, later, grant(3, 31, 115, 125, 0, 128, history.OK), {fault(13, 1, 100, 102)},
		}, false, 20 * time.Millisecond},
		{"half-open, handed on and given back", [][]history.Event{
			grant(1, 11, 10, 120, 0, 121, history.OK), grant(1, 12, 122, 140, 0, 145, history.OK), later, {fault(7, 1, 100, 400)},
		}, true, 18 * time.Millisecond},
		{"half-open, taken for valid for T(1−ρ) − m", [][]history.Event{
			grant(1, 11, 10, 840, 841, 842, history.Lost), grant(2, 21, 110, 900, 0, 910, history.OK), {fault(7, 1, 100, 860)},
		}, true, 730 * time.Millisecond},
		{"half-open, taken for valid for longer", [][]history.Event{
			grant(1, 11, 10, 1010, 1011, 1012, history.Lost), grant(2, 21, 110, 1030, 0, 1040, history.OK), {fault(7, 1, 100, 1030)},
		}, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var events []history.Event
			for _, some := range tt.events {
				events = append(events, some...)
			}
			r := &Result{Settings: fleet.Settings{Store: fleet.Postgres, Lease: time.Second}}
			report := check.Sweep(events, check.Facts{Excuse: r.excuses(events)})
			if err := report.Err(); (err == nil) != tt.ok {
				t.Errorf("judged %v; want ok %v", err, tt.ok)
			}
			var longest time.Duration
			for _, o := range report.Excused {
				longest = max(longest, time.Duration(o.To-o.From).Truncate(time.Millisecond))
			}
			if longest != tt.early {
				t.Errorf("two were valid for %v, want %v", longest, tt.early)
			}
		})
	}
}
