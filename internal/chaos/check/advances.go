package check

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An Advanced is a row that a transaction with an Advance has left. N is the
// order of the key's commits, from a row that each of them counts up.
type Advanced struct {
	Key, N, To, Number int64
	Began              history.Moment // the Advance's Begin
}

// A Marked is a watermark at the end.
type Marked struct{ Key, At int64 }

// What the error of Services matches if a watermark was wrong.
var (
	ErrMarkFell       = errors.New("check: a watermark fell or stayed")
	ErrAdvanceMissing = errors.New("check: an Advance that was committed has left no row, or several")
	ErrAdvanceStored  = errors.New("check: an Advance that was rejected has left a row")
	ErrNotPassed      = errors.New("check: an Advance was rejected, and no other had passed it")
	ErrMarkRead       = errors.New("check: a watermark was read that was not there")
)

// advances checks each watermark:
//
//   - In the order of the commits each number is higher than the one before. The
//     watermark at the end is the last of them.
//   - An Advance has left its row if it was committed, and none if it was
//     rejected. Of another result nothing is known.
//   - An Advance that has left a row was higher than all that were committed
//     before it began.
//   - An Advance was rejected only if another with that number or a higher one
//     was committed, and began before the rejection returned.
//   - What was read was committed, is not lower than what was committed before,
//     and not lower than what was read before.
func (c *services) advances(events []history.Event, left Left) {
	marks := map[int64]*mark{}
	of := func(key int64) *mark {
		if marks[key] == nil {
			marks[key] = &mark{services: c}
		}
		return marks[key]
	}
	for _, row := range left.Advanced {
		m := of(row.Key)
		m.rows = append(m.rows, row)
	}
	for _, at := range left.Marks {
		of(at.Key).end = &at
	}
	for _, e := range events {
		if e.Advance != nil {
			m := of(e.Advance.Key)
			m.calls = append(m.calls, *e.Advance)
		}
		if e.Mark != nil {
			m := of(e.Mark.Key)
			m.reads = append(m.reads, *e.Mark)
		}
	}
	for _, m := range marks {
		m.check()
	}
}

// A mark is all that is known of one watermark.
type mark struct {
	*services
	rows  []Advanced
	calls []history.Advance
	reads []history.Mark
	end   *Marked // nil: there is none

	committed highest // by End, of those that were acknowledged
	possible  highest // by Began, of all rows
}

func (m *mark) check() {
	slices.SortFunc(m.rows, func(a, b Advanced) int { return cmp.Compare(a.N, b.N) })
	stored := map[int64]int{} // rows by Number
	for i, row := range m.rows {
		stored[row.Number]++
		m.possible.add(row.Began, row.To)
		if i > 0 && m.rows[i-1].To >= row.To {
			m.found.add(ErrMarkFell, row)
		}
	}
	if n := len(m.rows); n > 0 && (m.end == nil || m.end.At != m.rows[n-1].To) || n == 0 && m.end != nil {
		m.found.add(ErrMarkFell, m.end)
	}
	for _, a := range m.calls {
		if a.Result == history.OK {
			m.committed.add(a.End, a.To)
		}
	}
	m.committed.prepare()
	m.possible.prepare()
	for _, row := range m.rows {
		if before, ok := m.committed.before(row.Began); ok && before >= row.To {
			m.found.add(ErrMarkFell, row)
		}
	}
	for _, a := range m.calls {
		m.call(a, stored[a.Number])
	}
	m.read()
}

// call checks one Advance, which has left n rows.
func (m *mark) call(a history.Advance, n int) {
	switch a.Result {
	case history.OK:
		m.count(&m.Advanced, a.Begin, a.End)
		if n != 1 {
			m.found.add(ErrAdvanceMissing, a)
		}
	case history.Passed:
		m.count(&m.Passed, a.Begin, a.End)
		if by, ok := m.possible.before(a.End + 1); !ok || by < a.To {
			m.found.add(ErrNotPassed, a)
		}
	}
	rejected := a.Result == history.Passed || a.Result == history.Fenced || a.Result == history.Lost
	if n > 1 || n > 0 && rejected {
		m.found.add(ErrAdvanceStored, a)
	}
}

// read checks what was read.
func (m *mark) read() {
	began := map[int64]history.Moment{} // of rows, by To
	for _, row := range m.rows {
		began[row.To] = row.Began
	}
	var seen highest
	for _, r := range m.reads {
		m.count(&m.Read, r.Begin, r.End)
		if r.Is {
			seen.add(r.End, r.At)
		}
	}
	seen.prepare()
	for _, r := range m.reads {
		since, there := began[r.At]
		for _, h := range []highest{m.committed, seen} {
			if before, ok := h.before(r.Begin); ok && (!r.Is || before > r.At) {
				m.found.add(ErrMarkRead, r)
			}
		}
		if r.Is && (!there || since > r.End) {
			m.found.add(ErrMarkRead, r)
		}
	}
}

// A highest is numbers that came at moments. It is filled by add, then prepared,
// then asked.
type highest struct{ all []numberAt }

type numberAt struct {
	at     history.Moment
	number int64
}

func (h *highest) add(at history.Moment, number int64) {
	h.all = append(h.all, numberAt{at, number})
}

func (h *highest) prepare() {
	slices.SortFunc(h.all, func(a, b numberAt) int { return cmp.Compare(a.at, b.at) })
	for i := range h.all {
		if i > 0 {
			h.all[i].number = max(h.all[i].number, h.all[i-1].number)
		}
	}
}

// before returns the highest number that came before m. ok is false if there is
// none.
func (h *highest) before(m history.Moment) (number int64, ok bool) {
	i := sort.Search(len(h.all), func(i int) bool { return h.all[i].at >= m })
	if i == 0 {
		return 0, false
	}
	return h.all[i-1].number, true
}
