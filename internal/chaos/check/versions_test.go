package check

import (
	"errors"
	"fmt"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

func started(process int, version string, keys ...int64) history.Event {
	return history.Event{Start: &history.Start{Process: process, Version: version, Keys: keys}}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	wrote := wrote(5, history.OK)
	wrote.Write.Process = 2
	events := join(
		list(started(1, "old", 7, 8), started(2, "new", 7, 8), started(3, "new", 7, 8), wrote),
		turn(1, 1, 0, 1), turn(1, 2, 1, 2), turn(2, 3, 2, 3), turn(3, 4, 3, 4), of(history.Set, turn(1, 5, 4, 5)), turn(1, 7, 5, 6),
		onKey(8, turn(2, 6, 5, 6)),
	)
	report := Sweep(events, tabled)
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	for version, want := range map[string]Share{
		"old": {Grants: map[history.Kind]int{history.Plain: 3, history.Set: 1}, After: 1, Writes: map[history.Result]int{}},
		"new": {Grants: map[history.Kind]int{history.Plain: 3}, After: 1, Writes: map[history.Result]int{history.OK: 1}},
	} {
		if got := report.Versions[version]; got == nil || fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", version, got, want)
		}
	}
	// A key that has another number is another key: no lock of one excludes one of the other.
	events = append(events, started(4, "new", 7, 9))
	if err := Sweep(events, tabled).Err(); !errors.Is(err, ErrNumbered) {
		t.Errorf("%v, want %v", err, ErrNumbered)
	}
}
