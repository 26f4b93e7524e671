package check

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

func TestTokens(t *testing.T) {
	tests := []struct {
		name string
		rows []Stored
		want error
	}{
		{name: "nothing"},
		{name: "rising", rows: []Stored{{1, 1, 1, 10, 1, 0}, {1, 2, 1, 10, 1, 0}, {1, 3, 1, 20, 2, 0}}},
		{name: "in any order of rows", rows: []Stored{{1, 3, 1, 20, 2, 0}, {1, 1, 1, 10, 1, 0}, {1, 2, 1, 10, 1, 0}}},
		{name: "fell", rows: []Stored{{1, 1, 1, 20, 2, 0}, {1, 2, 1, 10, 1, 0}}, want: ErrTokenFell},
		{name: "fell back after a later holder", rows: []Stored{{1, 1, 1, 10, 1, 0}, {1, 2, 1, 20, 2, 0}, {1, 3, 1, 10, 1, 0}}, want: ErrTokenFell},
		{name: "a later timeline has lower positions", rows: []Stored{{1, 1, 1, 20, 1, 0}, {1, 2, 2, 10, 2, 0}}},
		{name: "the timeline fell", rows: []Stored{{1, 1, 2, 10, 2, 0}, {1, 2, 1, 20, 1, 0}}, want: ErrTokenFell},
		{name: "other keys are others", rows: []Stored{{1, 1, 1, 20, 1, 0}, {2, 1, 1, 10, 2, 0}, {3, 1, 1, 20, 3, 0}}},
		{name: "two locks share", rows: []Stored{{1, 1, 1, 10, 1, 0}, {1, 2, 1, 10, 2, 0}}, want: ErrTokenShared},
		{name: "two locks of different keys share", rows: []Stored{{1, 1, 1, 10, 1, 0}, {2, 1, 1, 10, 2, 0}}},
		{name: "one lock has two", rows: []Stored{{1, 1, 1, 10, 1, 0}, {1, 2, 1, 20, 1, 0}}, want: ErrTokenChanged},
		{name: "two writes in one place", rows: []Stored{{1, 1, 1, 10, 1, 0}, {1, 1, 1, 10, 1, 0}}, want: ErrOrder},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := Fenced(nil, tt.rows, false); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestWrites(t *testing.T) {
	row := Stored{Key: key, N: 1, Lock: 1}
	tests := []struct {
		name   string
		events []history.Event
		rows   []Stored
		want   error
	}{
		{name: "stored", events: list(wrote(1, history.OK)), rows: []Stored{row}},
		{name: "missing", events: list(wrote(1, history.OK)), want: ErrWriteMissing},
		{name: "stored for another lock", events: list(wrote(2, history.OK)), rows: []Stored{row}, want: ErrWriteMissing},
		{name: "fenced", events: list(wrote(1, history.Fenced))},
		{name: "fenced and stored", events: list(wrote(1, history.Fenced)), rows: []Stored{row}, want: ErrWriteStored},
		{name: "lost and stored", events: list(wrote(1, history.Lost)), rows: []Stored{row}, want: ErrWriteStored},
		{name: "failed and stored", events: list(wrote(1, history.Failed)), rows: []Stored{row}},
		{name: "failed and stored twice", events: list(wrote(1, history.Failed)), rows: []Stored{row, {Key: key, N: 2, Lock: 1}}, want: ErrWriteStored},
		{name: "failed and not stored", events: list(wrote(1, history.Failed))},
		{name: "killed in the first write", rows: []Stored{row}},
		{name: "of three the fenced one is stored", events: numbered(history.OK, history.Failed, history.Fenced),
			rows: []Stored{{Key: key, N: 1, Lock: 1, Number: 1}, {Key: key, N: 2, Lock: 1, Number: 3}}, want: ErrWriteStored},
		{name: "of three the failed one is stored", events: numbered(history.OK, history.Failed, history.Fenced),
			rows: []Stored{{Key: key, N: 1, Lock: 1, Number: 1}, {Key: key, N: 2, Lock: 1, Number: 2}}},
		{name: "of two the failed one is stored, and not the other", events: numbered(history.OK, history.Failed),
			rows: []Stored{{Key: key, N: 1, Lock: 1, Number: 2}}, want: ErrWriteMissing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := Fenced(tt.events, tt.rows, true); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// numbered are writes of one lock, by number from 1, that ended so.
func numbered(results ...history.Result) (events []history.Event) {
	for i, result := range results {
		e := wrote(1, result)
		e.Write.Number = int64(i + 1)
		events = append(events, e)
	}
	return events
}

// A lock may have a later token after a restart of the server, where locks
// outlive one. It may never have an earlier one.
func TestTokensMayRise(t *testing.T) {
	risen := []Stored{{Key: 1, N: 1, LSN: 5, Lock: 1}, {Key: 1, N: 2, LSN: 7, Lock: 1}}
	if err := Fenced(nil, risen, true); err != nil {
		t.Error(err)
	}
	if err := Fenced(nil, risen, false); !errors.Is(err, ErrTokenChanged) {
		t.Errorf("where tokens stay: %v", err)
	}
	fallen := []Stored{{Key: 1, N: 1, LSN: 7, Lock: 1}, {Key: 1, N: 2, LSN: 5, Lock: 1}}
	if err := Fenced(nil, fallen, true); !errors.Is(err, ErrTokenChanged) || !errors.Is(err, ErrTokenFell) {
		t.Errorf("a token that falls: %v", err)
	}
}
