package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Each rule has a history that breaks it and one beside it that does not.
func TestRefusals(t *testing.T) {
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
		{name: "of different keys", events: join(onKey(1, turn(1, 1, 0, 9)), onKey(2, turn(2, 2, 3, 5)))},

		{name: "refused while held", events: join(turn(1, 1, 0, 9), list(refused(2, 4, 5)))},
		{name: "refused while free", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5))), illegal: true},
		{name: "refused before anybody had it", events: join(list(refused(2, 0, 1)), turn(1, 1, 2, 3)), illegal: true},
		{name: "refused as it is granted", events: join(list(refused(2, 0, 2)), turn(1, 1, 1.95, 3))},
		{name: "refused until just before", events: join(list(refused(2, 0, 1.9)), turn(1, 1, 1.95, 3)), illegal: true},
		{name: "refused as it is freed", events: join(turn(1, 1, 0, 3), list(refused(2, 2.85, 4)))},
		{name: "refused behind a caller of its process that waits, and another process is granted first", events: join(
			list(refused(2, 0.5, 0.6), waiting(granted(2, 2, 0.4, 6)), held(2, 2, 6, 7)), turn(1, 1, 1, 3))},
		{name: "the caller that waits is of another process", events: join(
			list(refused(3, 0.5, 0.6), waiting(granted(2, 2, 0.4, 6)), held(2, 2, 6, 7)), turn(1, 1, 1, 3)), illegal: true},
		{name: "refused with somebody in line", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5)), list(waiting(granted(3, 2, 4.5, 6)), held(3, 2, 6, 7)))},
		{name: "refused beside a call that does not wait", events: join(turn(1, 1, 0, 3), list(refused(2, 4, 5), refused(3, 4.5, 4.6))), illegal: true},
		{name: "refused while the Unlock of an earlier lock has not returned", events: join(list(
			granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 2, 8, history.OK), refused(3, 6, 7)), turn(2, 2, 3, 5))},
		{name: "refused when it has returned", events: join(list(
			granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 2, 5.5, history.OK), refused(3, 6, 7)), turn(2, 2, 3, 5)), illegal: true},

		{name: "refused beside a call without effect", events: list(refused(1, 1, 2), tried(2, 1.5, 3, history.GaveUp))},
		{name: "refused a lease after a call without effect", events: list(tried(2, 1, 2, history.Unavailable), refused(1, 7, 8))},
		{name: "refused long after a call without effect", events: list(tried(2, 1, 2, history.Unavailable), refused(1, 20, 21)), illegal: true},
		{name: "refused for ever, after a call that gave up", events: join(turn(1, 1, 0, 3), list(tried(2, 5, 5.1, history.GaveUp)), often(6, 600)), illegal: true},
		{name: "a lease after it was mended that the call was stuck in", events: list(
			tried(2, 1, 2, history.Unavailable), fault(4, 2, 1, 15), refused(1, 20, 21))},
		{name: "refused before a call without effect", events: list(refused(1, 1, 2), tried(2, 2.5, 3, history.Closed)), illegal: true},
		{name: "a call without effect does not free", events: join(turn(1, 1, 0, 9), list(tried(2, 2, 3, history.Unavailable)), turn(3, 2, 4, 5)), illegal: true},
		{name: "what was on its way has been given back by the next grant", events: join(list(tried(2, 0, 1, history.Capacity)), turn(1, 1, 2, 3), list(refused(3, 4, 5))), illegal: true},
		{name: "a call while the key was held left nothing behind", events: join(turn(1, 1, 0, 9), list(tried(2, 2, 3, history.Unavailable), refused(3, 10, 11))), illegal: true},
		{name: "but is done with only when it has settled", events: join(turn(1, 1, 0, 3), list(tried(2, 2, 2.5, history.Unavailable), refused(3, 3.2, 3.4)))},
		{name: "and that is when the fault is mended", events: join(turn(1, 1, 0, 3), list(
			tried(2, 2, 2.5, history.Unavailable), fault(1, 0, 2.2, 8), refused(3, 8.2, 8.4)))},
		{name: "refused beside a killed process' unseen call", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(1, 2, 5, 5.1)))},
		{name: "refused beside a fault that does not kill", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(4, 2, 5, 5.1))), illegal: true},
		{name: "a killed process in its first call for the key", events: join(turn(1, 1, 0, 3), onKey(8, list(tried(2, 0, 1, history.Capacity))),
			list(refused(3, 4, 4.5), fault(1, 2, 5, 5.1)))},
		{name: "the server's fault leaves no call unseen", events: join(turn(1, 1, 0, 3), list(refused(3, 4, 4.5), fault(1, 0, 5, 5.1))), illegal: true},

		{name: "granted after a loss", events: join(lost, turn(2, 2, 5, 7))},
		{name: "granted while seen valid", events: join(lost, turn(2, 2, 2, 2.5)), illegal: true},
		{name: "refused after a loss", events: join(lost, list(refused(2, 5, 6)))},
		{name: "a lost lock given back with success", events: list(
			granted(1, 1, 0, 1), granted(2, 2, 4, 5), unlocked(2, 2, 5, 6, 6, 7, history.OK), unlocked(1, 1, 1, 3, 8, 9, history.OK)), illegal: true},
		{name: "told and then given back with success", events: list(granted(1, 1, 0, 1), history.Event{Hold: &history.Hold{
			Process: 1, Key: key, Lock: 1, From: sec(1), Valid: sec(2), Told: sec(3), UnlockBegin: sec(4), Ended: sec(5), Unlock: history.OK}}), illegal: true},
		{name: "granted after an Unlock without an answer", events: join(unanswered, turn(2, 2, 5, 7))},
		{name: "granted after a kill", events: join(killed, turn(2, 2, 5, 7))},
		{name: "refused after a kill", events: join(killed, list(refused(2, 50, 51)))},
		{name: "granted twice after a kill", events: join(killed, turn(2, 2, 5, 7), turn(3, 3, 6, 8)), illegal: true},
		{name: "killed before it wrote the Hold", events: join(list(granted(1, 1, 0, 1)), turn(2, 2, 5, 7))},
		{name: "killed before it wrote the Try", events: join(list(refused(3, 0.5, 2), held(1, 1, 1, 1)), turn(2, 2, 5, 7))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Sweep(tt.events, tabled).Err()
			if illegal := errors.Is(err, ErrOverlap) || errors.Is(err, ErrIllegal) || errors.Is(err, ErrResurrected); illegal != tt.illegal {
				t.Errorf("got %v, want illegal: %v", err, tt.illegal)
			}
		})
	}
}

// A key that nobody holds is granted, unless there is trouble.
func TestLeaks(t *testing.T) {
	trouble := func(from, to float64) Facts {
		return with(func(f *Facts) {
			f.Free, f.Trouble = 5*time.Second, []history.Fault{{Begin: sec(from), End: sec(to)}}
		})
	}
	cut := join(list(granted(1, 1, 0, 1), held(1, 1, 1, 1)), list(fault(kill, 1, 20, 20)))
	heard := join(list(granted(1, 1, 0, 1), listening(held(1, 1, 1, 1))), list(fault(kill, 1, 20, 20)))
	for _, tt := range []struct {
		name   string
		events []history.Event
		opt    Facts
		leaks  int
	}{
		{"refused while it is given back", join(turn(1, 1, 0, 3), often(2, 5), turn(2, 2, 5, 7)), trouble(99, 99), 0},
		{"refused for ever", join(turn(1, 1, 0, 3), often(3, 900)), trouble(99, 99), 1},
		{"refused for ever, and somebody gave up", join(turn(1, 1, 0, 3), list(tried(2, 3, 3.1, history.GaveUp)), often(3, 900)), trouble(99, 99), 1},
		{"refused from the beginning", often(1, 900), trouble(99, 99), 1},
		{"refused, then granted", join(turn(1, 1, 0, 3), often(3, 90), turn(2, 2, 90, 91)), trouble(99, 99), 1},
		{"twice", join(turn(1, 1, 0, 3), often(3, 90), turn(2, 2, 90, 91), often(91, 200)), trouble(99, 99), 2},
		{"refused while there was trouble", join(turn(1, 1, 0, 3), often(3, 90)), trouble(1, 89), 0},
		{"refused long after the trouble", join(turn(1, 1, 0, 3), often(3, 90)), trouble(1, 50), 1},
		{"refused while a grant was on its way", join(turn(1, 1, 0, 3), often(20, 30), list(granted(2, 2, 19, 31), held(2, 2, 31, 32))), trouble(99, 99), 0},
		{"refused while held", join(turn(1, 1, 0, 90), often(2, 90)), trouble(99, 99), 0},
		{"refused while a process listens that is killed then", join(heard, often(1, 21)), trouble(99, 99), 0},
		{"refused while a process that looks at its lock is killed later", join(cut, often(1, 21)), trouble(99, 99), 1},
		{"refused while another process is killed later", join(heard[:2], list(fault(kill, 2, 20, 20)), often(1, 21)), trouble(99, 99), 1},
		{"granted to one process alone, which gives up at times", alone(1, 1), trouble(99, 99), 1},
		{"granted to two processes, of which one gives up at times", alone(1, 2), trouble(99, 99), 0},
		{"granted to one process alone, in trouble", alone(1, 1), trouble(1, 99), 0},
		{"refused for ever after that", join(heard, often(1, 900)), trouble(99, 99), 1},
	} {
		if err := Sweep(tt.events, tt.opt).Err(); errors.Is(err, ErrLeaked) != (tt.leaks > 0) {
			t.Errorf("%s: %v, want %d", tt.name, err, tt.leaks)
		}
	}
}

// alone is a history in which processes have the key in turn. Process 1 gives up
// before each of the refusals of process 3.
func alone(processes ...int) (all []history.Event) {
	for i := range 40 {
		at := 1 + 2*float64(i)
		all = append(all, turn(processes[i%len(processes)], int64(i+1), at, at+0.5)...)
		all = append(all, tried(1, at+0.6, at+0.7, history.GaveUp), refused(3, at+1, at+1.1))
	}
	return all
}

func listening(e history.Event) history.Event {
	e.Hold.Listens = true
	return e
}
