package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// advancing is an Advance of process 1, and serviced one of its lines.
func advancing(number, to int64, begin, end float64, result history.Result) history.Event {
	return serviced(history.Serviced{Advance: &history.Advance{Process: 1, To: to, Number: number, Begin: sec(begin), End: sec(end), Result: result}})
}

func serviced(s history.Serviced) history.Event { return history.Event{Serviced: s} }

func reading(at int64, begin, end float64) history.Event {
	return serviced(history.Serviced{Mark: &history.Mark{Process: 1, At: at, Is: at != 0, Begin: sec(begin), End: sec(end)}})
}

// marked is what Advances have left: rows, and the highest as the watermark.
func marked(rows ...Advanced) (left Left) {
	left.Advanced = rows
	if n := len(rows); n > 0 {
		left.Marks = []Marked{{At: rows[n-1].To}}
	}
	return left
}

// A judgedLeft is a history, with what is left, that is right, or how it is
// wrong.
type judgedLeft struct {
	name   string
	events []history.Event
	left   Left
	want   error // nil: it is right
}

func judgeLeft(t *testing.T, tests []judgedLeft, trouble ...history.Fault) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Services(tt.events, tt.left, ServiceParams{Trouble: NewTrouble(trouble), Leaderless: time.Second}); tt.want == nil && err != nil || !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

func TestAdvances(t *testing.T) {
	row := func(n, to, number int64, began float64) Advanced {
		return Advanced{N: n, To: to, Number: number, Began: sec(began)}
	}
	first, second := advancing(1, 5, 1, 2, history.OK), advancing(2, 7, 3, 4, history.OK)
	both := marked(row(1, 5, 1, 1), row(2, 7, 2, 3))
	judgeLeft(t, []judgedLeft{
		{"two in order", list(first, second), both, nil},
		{"a row that no line tells of", list(second), both, nil},
		{"a lower one is committed later", list(first), marked(row(1, 7, 2, 1), row(2, 5, 1, 1)), ErrMarkFell},
		{"the same one twice", list(first), marked(row(1, 5, 2, 1), row(2, 5, 1, 1)), ErrMarkFell},
		{"one that began when a higher one was committed", list(second), marked(row(1, 5, 1, 9), row(2, 7, 2, 3)), ErrMarkFell},
		{"the watermark is another one", list(first), Left{Advanced: both.Advanced, Marks: []Marked{{At: 5}}}, ErrMarkFell},
		{"the watermark is gone", list(first), Left{Advanced: both.Advanced}, ErrMarkFell},
		{"a watermark of nothing", nil, Left{Marks: []Marked{{At: 5}}}, ErrMarkFell},
		{"committed, and no row", list(first, second), marked(row(1, 5, 1, 1)), ErrAdvanceMissing},
		{"committed twice", list(first), marked(row(1, 5, 1, 1), row(2, 6, 1, 1)), ErrAdvanceMissing},
		{"unknown, and a row", list(advancing(1, 5, 1, 2, history.Failed)), marked(row(1, 5, 1, 1)), nil},
		{"unknown, and no row", list(advancing(1, 5, 1, 2, history.Failed)), marked(), nil},
		{"fenced, and a row", list(advancing(1, 5, 1, 2, history.Fenced)), marked(row(1, 5, 1, 1)), ErrAdvanceStored},
		{"passed, and a row", list(advancing(1, 5, 1, 2, history.Passed)), marked(row(1, 5, 1, 1)), ErrAdvanceStored},
		{"passed by one that was committed", list(first, advancing(3, 5, 1, 2, history.Passed)), marked(row(1, 5, 1, 1)), nil},
		{"passed by one that began later", list(second, advancing(3, 5, 1, 2, history.Passed)), marked(row(1, 7, 2, 3)), ErrNotPassed},
		{"passed by a lower one", list(first, advancing(3, 6, 1, 2, history.Passed)), marked(row(1, 5, 1, 1)), ErrNotPassed},
		{"read", list(first, second, reading(0, 1, 2), reading(5, 1.5, 3), reading(5, 3, 4), reading(7, 3, 4), reading(7, 5, 6)), both, nil},
		{"read as lower than before", list(first, second, reading(5, 5, 6)), both, ErrMarkRead},
		{"read as lower than it was read", list(first, reading(7, 3, 3.1), reading(5, 3.2, 3.3)), both, ErrMarkRead},
		{"read as nothing", list(first, second, reading(0, 3, 4)), both, ErrMarkRead},
		{"read before it was there", list(first, second, reading(7, 1, 2)), both, ErrMarkRead},
		{"read as what was never there", list(first, second, reading(6, 3, 4)), both, ErrMarkRead},
	})
}
