package check

import (
	"errors"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Each rule has a history that breaks it and one beside it that does not.
func TestLinearize(t *testing.T) {
	killed := list(granted(1, 1, 0, 1), held(1, 1, 1, 1))
	lost := list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4))
	unanswered := list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 3, 4, history.Unavailable))
	tests := []struct {
		name    string
		events  []history.Event
		illegal bool
	}{
		{name: "nothing"},
		{name: "one after the other", events: join(turn(1, 1, 0, 3), turn(2, 2, 3, 5))},
		{name: "granted while held", events: join(turn(1, 1, 0, 9), turn(2, 2, 3, 5)), illegal: true},
		{name: "granted to a process that froze with the answer, and when its lease had passed to the next", events: join(
			list(granted(1, 1, 0, 1), told(1, 1, 9, 0, 9)), turn(2, 2, 4, 6))},
		{name: "granted to a process that froze before the answer, and meanwhile to the next", events: join(
			list(granted(1, 1, 0, 9), told(1, 1, 9, 0, 9)), turn(2, 2, 4, 6))},
		{name: "the same, and the answer is read while a third has it", events: join(
			list(granted(1, 1, 0, 9), told(1, 1, 9, 0, 9), refused(4, 1, 1.5)), turn(2, 2, 4, 6), turn(3, 3, 6.5, 9.5), list(refused(4, 8, 8.5)))},
		{name: "granted while the answer is on its way, and seen valid", events: join(list(granted(1, 1, 0, 5), told(1, 1, 5, 6, 7)), turn(2, 2, 1, 9)), illegal: true},
		{name: "granted as the Unlock returns", events: join(turn(1, 1, 0, 3), turn(2, 2, 2.95, 5))},
		{name: "granted before the Unlock", events: join(turn(1, 1, 0, 3), turn(2, 2, 2.7, 5)), illegal: true},
		{name: "granted to the last in line", events: join(turn(1, 1, 0, 3), list(
			waiting(granted(2, 3, 1, 6)), unlocked(2, 3, 6, 7, 7, 8, history.OK),
			waiting(granted(3, 2, 2, 4)), unlocked(3, 2, 4, 5, 5, 5.5, history.OK)))},
		{name: "granted in no time", events: list(
			granted(1, 1, 1, 1), unlocked(1, 1, 1, 2, 3, 3, history.OK), granted(2, 2, 3, 3), held(2, 2, 3, 4))},
		{name: "of different keys", events: join(onKey(1, turn(1, 1, 0, 9)), onKey(2, turn(2, 2, 3, 5)))},

		{name: "refused while held", events: join(turn(1, 1, 0, 9), list(refused(2, 4, 5)))},
		{name: "refused while free", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5))), illegal: true},
		{name: "refused before anybody had it", events: join(list(refused(2, 0, 1)), turn(1, 1, 2, 3)), illegal: true},
		{name: "refused as it is granted", events: join(list(refused(2, 0, 2)), turn(1, 1, 1.95, 3))},
		{name: "refused until just before", events: join(list(refused(2, 0, 1.9)), turn(1, 1, 1.95, 3)), illegal: true},
		{name: "refused as it is freed", events: join(turn(1, 1, 0, 3), list(refused(2, 2.85, 4)))},
		{name: "refused just after", events: join(turn(1, 1, 0, 3), list(refused(2, 3.01, 4))), illegal: true},
		{name: "refused between two", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5)), turn(3, 2, 6, 9)), illegal: true},
		{name: "refused while the key is another's", events: join(onKey(1, turn(1, 1, 0, 9)), onKey(2, list(refused(2, 4, 5)))), illegal: true},

		{name: "refused with somebody in line", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5)), list(waiting(granted(3, 2, 4.5, 6)), held(3, 2, 6, 7)))},
		{name: "refused before anybody was", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5)), list(waiting(granted(3, 2, 5.5, 6)), held(3, 2, 6, 7))), illegal: true},
		{name: "refused beside a call that does not wait", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5), refused(3, 4.5, 4.6))), illegal: true},
		{name: "refused while the Unlock of an earlier lock has not returned", events: join(list(
			granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 2, 8, history.OK), refused(3, 6, 7)), turn(2, 2, 3, 5))},
		{name: "refused when it has returned", events: join(list(
			granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 2, 5.5, history.OK), refused(3, 6, 7)), turn(2, 2, 3, 5)), illegal: true},

		{name: "refused beside a call without effect", events: list(refused(1, 1, 2), tried(2, 1.5, 3, history.GaveUp))},
		{name: "refused a lease after a call without effect", events: list(tried(2, 1, 2, history.Unavailable), refused(1, 7, 8))},
		{name: "refused long after a call without effect", events: list(tried(2, 1, 2, history.Unavailable), refused(1, 20, 21)), illegal: true},
		{name: "refused for ever, after a call that gave up", events: join(turn(1, 1, 0, 3), list(tried(2, 5, 5.1, history.GaveUp)), refusals(6, 600)), illegal: true},
		{name: "a lease after it was mended that the call was stuck in", events: list(
			tried(2, 1, 2, history.Unavailable), fault(4, 2, 1, 15), refused(1, 20, 21))},
		{name: "refused before a call without effect", events: list(refused(1, 1, 2), tried(2, 2.5, 3, history.Closed)), illegal: true},
		{name: "a call without effect does not free", events: join(turn(1, 1, 0, 9), list(tried(2, 2, 3, history.Unavailable)), turn(3, 2, 4, 5)), illegal: true},
		{name: "what was on its way has been given back by the next grant", events: join(list(tried(2, 0, 1, history.Capacity)), turn(1, 1, 2, 3), list(refused(3, 4, 5))), illegal: true},
		{name: "a call while the key was held left nothing behind", events: join(turn(1, 1, 0, 9), list(tried(2, 2, 3, history.Unavailable), refused(3, 10, 11))), illegal: true},
		{name: "but is done with only when it has settled", events: join(turn(1, 1, 0, 3), list(tried(2, 2, 2.5, history.Unavailable), refused(3, 3.2, 3.4)))},
		{name: "and that is when the fault is mended", events: join(turn(1, 1, 0, 3), list(
			tried(2, 2, 2.5, history.Unavailable), fault(1, 0, 2.2, 8), refused(3, 8.2, 8.4)))},
		{name: "also of a fault that comes just after", events: join(turn(1, 1, 0, 3), list(
			tried(2, 2, 2.5, history.Unavailable), fault(1, 0, 2.7, 8), refused(3, 8.2, 8.4)))},
		{name: "not for ever", events: join(turn(1, 1, 0, 3), list(
			tried(2, 2, 2.5, history.Unavailable), fault(1, 0, 2.2, 8), refused(3, 9.2, 9.4))), illegal: true},
		{name: "refused beside a killed process' unseen call", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(1, 2, 5, 5.1)))},
		{name: "refused beside a fault that does not kill", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(4, 2, 5, 5.1))), illegal: true},
		{name: "a killed process that had asked for the key", events: join(turn(2, 1, 0, 3), list(refused(3, 4, 4.5), fault(1, 2, 5, 5.1)))},
		{name: "a killed process in its first call for the key", events: join(turn(1, 1, 0, 3), onKey(8, list(tried(2, 0, 1, history.Capacity))),
			list(refused(3, 4, 4.5), fault(1, 2, 5, 5.1)))},
		{name: "long before the kill", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(1, 2, 7, 7.1))), illegal: true},
		{name: "the server's fault leaves no call unseen", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(1, 0, 5, 5.1))), illegal: true},

		{name: "granted after a loss", events: join(lost, turn(2, 2, 5, 7))},
		{name: "granted after a loss that is told later", events: join(lost, turn(2, 2, 3.5, 3.8))},
		{name: "granted while seen valid", events: join(lost, turn(2, 2, 2, 2.5)), illegal: true},
		{name: "refused after a loss", events: join(lost, list(refused(2, 5, 6)))},
		{name: "refused after a loss and a turn", events: join(lost, turn(2, 2, 5, 7), list(refused(3, 8, 9))), illegal: true},
		{name: "a lost lock given back with success", events: list(
			granted(1, 1, 0, 1), granted(2, 2, 4, 5), unlocked(2, 2, 5, 6, 6, 7, history.OK), unlocked(1, 1, 1, 3, 8, 9, history.OK)), illegal: true},
		{name: "told and then given back with success", events: list(granted(1, 1, 0, 1), history.Event{Hold: &history.Hold{
			Process: 1, Key: key, Lock: 1, From: sec(1), Valid: sec(2), Told: sec(3), UnlockBegin: sec(4), Ended: sec(5), Unlock: history.OK}}), illegal: true},
		{name: "lost by what the Unlock says", events: join(list(
			granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 8, 9, history.Lost)), turn(2, 2, 3, 5))},
		{name: "granted after an Unlock without an answer", events: join(unanswered, turn(2, 2, 5, 7))},
		{name: "refused after an Unlock without an answer", events: join(unanswered, list(refused(2, 50, 51)))},
		{name: "granted after a kill", events: join(killed, turn(2, 2, 5, 7))},
		{name: "refused after a kill", events: join(killed, list(refused(2, 50, 51)))},
		{name: "granted twice after a kill", events: join(killed, turn(2, 2, 5, 7), turn(3, 3, 6, 8)), illegal: true},
		{name: "killed before it wrote the Hold", events: join(list(granted(1, 1, 0, 1)), turn(2, 2, 5, 7))},
		{name: "killed before it wrote the Try", events: join(list(refused(3, 0.5, 2), held(1, 1, 1, 1)), turn(2, 2, 5, 7))},
		{name: "killed in its Unlock", events: join(list(granted(1, 1, 0, 1), history.Event{Hold: &history.Hold{
			Process: 1, Key: key, Lock: 1, From: sec(1), Valid: sec(2), UnlockBegin: sec(3)}}), list(refused(3, 20, 21)), turn(2, 2, 25, 27))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Linearize(tt.events, terms(time.Minute))
			if illegal := finely(t, tt.events) == porcupine.Illegal; illegal != tt.illegal {
				t.Errorf("in the smallest pieces: illegal %v, want %v", illegal, tt.illegal)
			}
			if illegal := errors.Is(err, ErrIllegal); illegal != tt.illegal || illegal != (err != nil) {
				t.Errorf("got %v, want illegal: %v; %+v", err, tt.illegal, v)
			}
		})
	}
}

// finely returns the result with cuts wherever they are right.
func finely(t *testing.T, events []history.Event) porcupine.CheckResult {
	t.Helper()
	rs, err := index(events)
	if err != nil {
		t.Fatal(err)
	}
	faults := disturbances(rs.faults)
	for _, r := range rs.keys {
		ops, _, _ := r.operations(r.excuses(rs, terms(0), faults))
		r.narrow(ops)
		if result := checkAll(r.pieces(ops, 1)); result != porcupine.Ok {
			return result
		}
	}
	return porcupine.Ok
}

// The result names the key and the place.
func TestPlace(t *testing.T) {
	var events []history.Event
	for i := range 1000 {
		events = append(events, onKey(1, turn(1, int64(i+1), float64(10*i), float64(10*i+5)))...)
	}
	events = append(events, onKey(1, list(refused(2, 5006, 5007)))...)
	events = append(events, onKey(2, list(refused(2, 5006, 5007), granted(3, 2000, 0, 1), held(3, 2000, 1, 2)))...)
	v, err := Linearize(events, terms(time.Minute))
	if !errors.Is(err, ErrIllegal) || len(v.Illegal) != 1 || v.Keys != 2 || v.Operations != 2004 {
		t.Fatalf("got %+v, %v", v, err)
	}
	at := v.Illegal[0]
	if at.Key != 1 || at.From > sec(5006) || at.To < sec(5007) || at.Operations > 2*pieceLen {
		t.Errorf("got %+v, want the piece around second 5006 of key 1", at)
	}
}

// What cannot be judged counts.
func TestExcused(t *testing.T) {
	v, err := Linearize(join(turn(1, 1, 0, 3), list(
		refused(2, 1, 2),                                          // held: judged
		refused(2, 4, 4.1), tried(3, 4, 4.2, history.Unavailable), // free: not
		granted(1, 2, 6, 7), told(1, 2, 7, 8, 9),
		refused(2, 10, 11), tried(3, 10, 11, history.Unavailable)), // in limbo: judged
	), terms(time.Minute))
	if err != nil || v.Excused != 1 || v.Operations != 6 {
		t.Errorf("got %+v, %v; want 1 excused of 7", v, err)
	}
}

// A refusal beside an Unlock, or behind a call of its process that waits, is
// judged. One beside a call of another process that waits is not.
func TestExplained(t *testing.T) {
	for _, tt := range []struct {
		name               string
		events             []history.Event
		explained, excused int
	}{
		{"beside an Unlock", join(list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 3, 9, history.OK)), list(refused(2, 5, 6))), 1, 0},
		{"behind its own process", join(turn(1, 1, 0, 3), list(refused(2, 5, 6), waiting(granted(2, 2, 4, 9)), held(2, 2, 9, 9))), 1, 0},
		{"beside another process", join(turn(1, 1, 0, 3), list(refused(3, 5, 6), waiting(granted(2, 2, 4, 9)), held(2, 2, 9, 9))), 0, 1},
		{"after an Unlock", join(list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 3, 4, history.OK)), list(refused(2, 5, 6), tried(3, 5, 5.5, history.Unavailable))), 0, 1},
	} {
		v, err := Linearize(tt.events, terms(time.Minute))
		if err != nil || v.Explained != tt.explained || v.Excused != tt.excused {
			t.Errorf("%s: got %+v, %v", tt.name, v, err)
		}
	}
}

func TestUndecided(t *testing.T) {
	v, err := Linearize(turn(1, 1, 0, 3), terms(time.Nanosecond))
	if !errors.Is(err, ErrUndecided) || errors.Is(err, ErrIllegal) || len(v.Undecided) != 1 {
		t.Errorf("got %+v, %v", v, err)
	}
}

func TestLinearizeMalformed(t *testing.T) {
	if _, err := Linearize(list(granted(1, 1, 0, 1), granted(2, 1, 2, 3)), terms(0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v, want ErrMalformed", err)
	}
}
