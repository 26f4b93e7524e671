//go:build linux

package round

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// ms is a moment of the histories below, in milliseconds.
func ms(n int) history.Moment { return history.Moment(n) * history.Moment(time.Millisecond) }

// Kinds of faults by what they may cost.
const (
	keeps = 1 // a switchover
	loses = 4 // a leader that is cut off
)

func TestExcuse(t *testing.T) {
	faults := []Outcome{{Row: keeps, Begin: ms(1000), Settled: ms(5000)}, {Row: loses, Begin: ms(10000), Settled: ms(40000)}}
	lock := func(process, from, valid, told int) check.Grant {
		return check.Grant{Granted: ms(from), Hold: history.Hold{Process: process, From: ms(from), Valid: ms(valid), Told: ms(told)}}
	}
	tests := []struct {
		name string
		a, b check.Grant
		want bool
	}{
		{"during a fault", lock(1, 1500, 2030, 2060), lock(2, 2020, 2100, 0), true},
		{"the same, in the other order", lock(2, 2020, 2100, 0), lock(1, 1500, 2030, 2060), true},
		{"granted before the fault", lock(1, 9000, 30000, 0), lock(2, 28000, 28500, 0), true},
		{"of one process", lock(1, 1500, 2030, 2060), lock(1, 2020, 2100, 0), false},
		{"before any fault", lock(1, 500, 630, 0), lock(2, 620, 700, 0), false},
		{"between two faults", lock(1, 6000, 6030, 0), lock(2, 6020, 6100, 0), false},
		{"the news comes when all is well again", lock(1, 4000, 5100, 5200), lock(2, 4500, 9000, 0), true},
		{"both go on when all is well again", lock(1, 4000, 9000, 0), lock(2, 4500, 9000, 0), false},
	}
	for _, tt := range tests {
		if got := excuse(faults, tt.a, tt.b); got != tt.want {
			t.Errorf("%s: excused: %t, want %t", tt.name, got, tt.want)
		}
	}
}

func TestMissing(t *testing.T) {
	write := func(number int64, at int, result history.Result) history.Event {
		return history.Event{Write: &history.Write{Number: number, Begin: ms(at - 10), End: ms(at), Result: result}}
	}
	tests := []struct {
		name       string
		event      history.Event
		missing    int // in the fault that loses
		violations int
	}{
		{"stored", write(1, 500, history.OK), 0, 0},
		{"not acknowledged", write(9, 6500, history.Failed), 0, 0},
		{"lost on the side that was cut off", write(9, 6500, history.OK), 1, 0},
		{"lost when the cluster was whole again", write(9, 9500, history.OK), 0, 1},
		{"lost to the fault that came next", write(9, 5500, history.OK), 1, 0},
		{"lost long before it", write(9, 3900, history.OK), 0, 1},
		{"lost to a switchover", write(9, 1500, history.OK), 0, 1},
		{"lost before any fault", write(9, 100, history.OK), 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := []Outcome{{Row: keeps, Begin: ms(1000), Settled: ms(3000)}, {Row: loses, Begin: ms(6000), Settled: ms(9000)}}
			before := *tt.event.Write
			without, lost := missing(all, []history.Event{tt.event}, []check.Stored{{Number: 1}})
			if all[1].Missing != tt.missing || all[0].Missing != 0 || len(lost) != tt.violations {
				t.Errorf("missing %d, lost %v; want %d and %d", all[1].Missing, lost, tt.missing, tt.violations)
			}
			if *tt.event.Write != before {
				t.Error("the history itself was changed")
			}
			if found := without[0].Write.Result != before.Result; found != (tt.missing != 0 || tt.violations > 0) {
				t.Errorf("the write is %s afterwards", without[0].Write.Result)
			}
		})
	}
}
