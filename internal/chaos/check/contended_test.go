package check

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A call for several keys counts once, and one whose only rival stands still is not
// contended.
func TestContendedCalls(t *testing.T) {
	call := func(number int64, events ...history.Event) []history.Event {
		for _, e := range events {
			e.Try.Call = number
		}
		return events
	}
	events := join(
		call(1, granted(1, 1, 1, 2)), onKey(8, call(1, tried(1, 1, 2, history.GaveUp))),
		list(refused(2, 1.5, 1.6)),
		list(refused(3, 3, 9), refused(1, 4, 5), refused(1, 6, 7)), // process 3 is frozen
	)
	r := Sweep(events, WithCut(TimesOf(list(fault(freeze, 3, 3.5, 8)), freeze)))
	if r.Operations != 5 || r.Contended != 2 || r.Tries[history.OK] != 1 || r.Tries[history.GaveUp] != 0 {
		t.Errorf("%d calls, %d contended, %v; want 5 and 2, of them one granted", r.Operations, r.Contended, r.Tries)
	}
}
