package check

import (
	"errors"
	"math/rand/v2"
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

// Random histories of right watermarks pass, and each defect is found in most.
func TestRandomAdvances(t *testing.T) {
	for name, defect := range map[string]struct {
		break1 func(*rand.Rand, []history.Event, *Left) bool
		want   error
	}{
		"none": {func(*rand.Rand, []history.Event, *Left) bool { return true }, nil},
		"a row is gone": {func(rng *rand.Rand, events []history.Event, left *Left) bool {
			i := rng.IntN(len(left.Advanced))
			number := left.Advanced[i].Number
			left.Advanced = append(left.Advanced[:i:i], left.Advanced[i+1:]...)
			return resultOf(events, number) == history.OK
		}, ErrAdvanceMissing},
		"two rows change places": {func(rng *rand.Rand, _ []history.Event, left *Left) bool {
			i := 1 + rng.IntN(len(left.Advanced)-1)
			left.Advanced[i].N, left.Advanced[i-1].N = left.Advanced[i-1].N, left.Advanced[i].N
			return true
		}, ErrMarkFell},
		"one that was committed says that it was passed": {func(rng *rand.Rand, events []history.Event, _ *Left) bool {
			a := events[rng.IntN(len(events))].Advance
			if a == nil || a.Result != history.OK {
				return false
			}
			a.Result = history.Passed
			return true
		}, ErrAdvanceStored},
		"a read of the first mark comes last": {func(_ *rand.Rand, events []history.Event, left *Left) bool {
			for _, e := range events {
				if e.Mark != nil {
					e.Mark.Begin, e.Mark.End, e.Mark.At, e.Mark.Is = sec(1e6), sec(1e6), left.Advanced[0].To, true
					return true
				}
			}
			return false
		}, ErrMarkRead},
	} {
		t.Run(name, func(t *testing.T) {
			broken := 0
			for seed := range uint64(seeds) {
				rng := rand.New(rand.NewPCG(seed, 5))
				events, left := simulateAdvances(rng, 200)
				if !defect.break1(rng, events, &left) {
					continue
				}
				broken++
				if _, err := Services(events, left, ServiceParams{}); defect.want == nil && err != nil || !errors.Is(err, defect.want) {
					t.Fatalf("seed %d: %v, want %v", seed, err, defect.want)
				}
			}
			if broken < seeds/10 {
				t.Errorf("%d histories show too little", broken)
			}
		})
	}
}

func resultOf(events []history.Event, number int64) history.Result {
	for _, e := range events {
		if e.Advance != nil && e.Advance.Number == number {
			return e.Advance.Result
		}
	}
	return ""
}

// simulateAdvances is the history of a right watermark. Each call takes effect
// at a moment of its own; a tenth gets no answer, and a tenth leaves no line.
func simulateAdvances(rng *rand.Rand, calls int) (events []history.Event, left Left) {
	now, mark := history.Moment(0), int64(0)
	for number := range int64(calls) {
		now += 1 + history.Moment(rng.Int64N(10))
		begin, end := now-history.Moment(rng.Int64N(50)), now+history.Moment(rng.Int64N(50))
		if rng.IntN(4) == 0 {
			events = append(events, serviced(history.Serviced{Mark: &history.Mark{At: mark, Is: mark != 0, Begin: begin, End: end}}))
			continue
		}
		a := history.Advance{To: 1 + max(0, mark+rng.Int64N(5)-2), Number: number, Begin: begin, End: end, Result: history.Passed}
		if a.To > mark {
			mark, a.Result = a.To, history.OK
			left.Advanced = append(left.Advanced, Advanced{N: int64(len(left.Advanced)), To: mark, Number: number, Began: begin})
		}
		switch rng.IntN(10) {
		case 0:
			a.Result = history.Failed
		case 1:
			continue
		}
		events = append(events, serviced(history.Serviced{Advance: &a}))
	}
	left.Marks = []Marked{{At: mark}}
	return events, left
}
