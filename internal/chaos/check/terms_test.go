package check

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// term is a turn of a leader with this token.
func term(process int, lock int64, token string, begin, end float64) []history.Event {
	events := of(history.Term, turn(process, lock, begin, end))
	for _, e := range events {
		if e.Hold != nil {
			e.Hold.Token = token
		}
	}
	return events
}

// stood is a call of a process that wanted to lead until end.
func stood(process int, begin, end float64) history.Event {
	return of(history.Term, list(waiting(tried(process, begin, end, history.GaveUp))))[0]
}

func TestTerms(t *testing.T) {
	leads := func(at, until float64) []history.Event {
		events := of(history.Term, list(granted(1, 1, 1, 1.1), told(1, 1, 1.1, until, until+0.1)))
		events[1].Hold.Leads = sec(at)
		return events
	}
	judgeLeft(t, []judgedLeft{
		{"one after the other", join(term(1, 1, "a", 1, 2), term(2, 2, "b", 2.5, 3), term(1, 3, "c", 3.5, 4)), Left{}, nil},
		{"the same token", join(term(1, 1, "a", 1, 2), term(2, 2, "a", 2.5, 3)), Left{}, ErrTermToken},
		{"a smaller token", join(term(1, 1, "b", 1, 2), term(2, 2, "a", 2.5, 3)), Left{}, ErrTermToken},
		{"a smaller token than two terms before", join(term(1, 1, "b", 1, 2), term(1, 2, "", 2.2, 2.3), term(2, 3, "a", 2.5, 3)), Left{}, ErrTermToken},
		{"a token that could not be drawn", join(term(1, 1, "b", 1, 2), term(2, 2, "", 2.5, 3)), Left{}, nil},
		{"a smaller token of a term that overlaps", join(term(1, 1, "b", 1, 3), term(2, 2, "a", 2.5, 3)), Left{}, nil},
		{"calls itself leader until it is told", leads(1.9, 2), Left{}, nil},
		{"calls itself leader after it was told", leads(3, 2), Left{}, ErrLeadsOn},
		{"no leader for two seconds", join(term(1, 1, "a", 1, 2), term(2, 2, "b", 4, 5)), Left{}, ErrLeaderless},
		{"no leader during a fault", join(term(1, 1, "a", 1, 2), term(2, 2, "b", 4, 5), list(fault(9, 0, 2.5, 4))), Left{}, nil},
		{"no leader in the end", join(term(1, 1, "a", 1, 2), list(stood(2, 1, 9))), Left{}, ErrLeaderless},
		{"no leader in the end, for a moment", join(term(1, 1, "a", 1, 2), list(stood(2, 1, 2.5))), Left{}, nil},
		{"never a leader", list(stood(2, 1, 9)), Left{}, ErrLeaderless},
		{"no leader at first", join(list(stood(2, 1, 3)), term(1, 1, "a", 9, 10)), Left{}, ErrLeaderless},
		{"keys that have no leader", join(turn(1, 1, 1, 2), turn(2, 2, 9, 10)), Left{}, nil},
	})
	report, err := Services(join(term(1, 1, "a", 1, 2), term(2, 2, "b", 2.5, 3)), Left{}, ServiceParams{Trouble: NewTrouble([]history.Fault{{Begin: sec(1.5), End: sec(1.6)}})})
	if err != nil || report.Terms != (Count{2, 1}) || report.Leaders != 2 || report.Ranked != 1 || report.Leading != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
