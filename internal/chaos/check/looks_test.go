package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// look is what an operator sees for a tenth of a second.
func look(begin float64, holders ...history.Shown) history.Event {
	return serviced(history.Serviced{Look: &history.Look{Begin: sec(begin), End: sec(begin + 0.1), Holders: holders}})
}

func shown(process int, lock int64, held float64) history.Shown {
	return history.Shown{Key: key, Session: int64(process), Process: process, Lock: lock, For: sec(held)}
}

func waits(e history.Event, sessions ...int64) history.Event {
	for _, s := range sessions {
		e.Look.Waiters = append(e.Look.Waiters, history.Poll{Key: key, Session: s, Callers: 1})
	}
	return e
}

func aged(process int, at, held float64, ok bool) history.Event {
	return serviced(history.Serviced{Age: &history.Age{Process: process, Key: key, Begin: sec(at), End: sec(at), For: sec(held), OK: ok}})
}

// registryParams are those of the histories here.
func registryParams(faults ...history.Fault) ServiceParams {
	second := time.Second
	return ServiceParams{
		Trouble: NewTrouble(faults), Kills: []int{kill},
		Registry: &RegistryTimes{Written: 2 * second, Forgotten: 2 * second, Closed: second, Expired: 3 * second, Off: second, Valid: second},
	}
}

func TestLooks(t *testing.T) {
	long := turn(1, 1, 1, 20) // held from 1.1 to 19.9
	killed := join(list(granted(1, 1, 1, 1.1), held(1, 1, 1.1, 5)), list(fault(kill, 1, 5, 5)))
	wait := of(history.Term, list(waiting(tried(2, 5, 15, history.GaveUp))))
	for _, tt := range []struct {
		name   string
		events []history.Event
		faults []history.Fault
		want   error
	}{
		{"shown", join(long, list(look(9, shown(1, 1, 8)))), nil, nil},
		{"not shown", join(long, list(look(9))), nil, ErrNotShown},
		{"not shown in its trouble", join(long, list(look(9))), []history.Fault{{Process: 1, Begin: sec(8), End: sec(8.5)}}, nil},
		{"not shown in the trouble of another", join(long, list(look(9))), []history.Fault{{Process: 2, Begin: sec(8), End: sec(8.5)}}, ErrNotShown},
		{"without a name at first", join(long, list(look(2, history.Shown{Key: key}))), nil, nil},
		{"not at all at first", join(long, list(look(2))), nil, ErrNotShown},
		{"without a name", join(long, list(look(9, history.Shown{Key: key}))), nil, ErrNotShown},
		{"of another process", join(long, list(look(9, shown(2, 1, 8)))), nil, ErrNotShown},
		{"by the name of no lock", join(long, list(look(9, shown(1, 1, 8), shown(1, 5, 8)))), nil, ErrNotShown},
		{"before it was asked for", join(long, list(look(0.5, shown(1, 1, 0)))), nil, ErrNotShown},
		{"since another time", join(long, list(look(9, shown(1, 1, 5)))), nil, ErrWrongSince},
		{"since before it was asked for", join(long, list(look(9, shown(1, 1, 9.5)))), nil, ErrWrongSince},
		{"still, after a moment", join(long, list(look(21, shown(1, 1, 20)))), nil, nil},
		{"still, after long", join(long, list(look(23, shown(1, 1, 22)))), nil, ErrStillShown},
		{"still, while its process is in trouble", join(long, list(look(26, shown(1, 1, 25)))), []history.Fault{{Process: 1, Begin: sec(20.5), End: sec(25)}}, nil},
		{"still, long after the trouble", join(long, list(look(28, shown(1, 1, 27)))), []history.Fault{{Process: 1, Begin: sec(20.5), End: sec(25)}}, ErrStillShown},
		{"still, while there is one trouble after the other", join(long, list(look(29, shown(1, 1, 28)))), []history.Fault{{Process: 1, Begin: sec(20.5), End: sec(25)}, {Process: 1, Begin: sec(26), End: sec(28)}}, nil},
		{"still, while another process is in trouble", join(long, list(look(26, shown(1, 1, 25)))), []history.Fault{{Process: 2, Begin: sec(20.5), End: sec(25)}}, ErrStillShown},
		{"a process that was killed", join(killed, list(look(5.5, shown(1, 1, 4.5)))), nil, nil},
		{"a process that was killed long ago", join(killed, list(look(6.5, shown(1, 1, 5.5)))), nil, ErrStillShown},
		{"what a process noted no more", join(killed, list(look(4, shown(1, 1, 3), shown(1, 9, 0)))), nil, nil},
		{"waits of a process that was killed", join(killed, list(look(4, shown(1, 1, 3)), waits(look(9), 1))), nil, ErrStillShown},
		{"waits that have not expired", join(killed, list(look(4, shown(1, 1, 3)), waits(look(7.5), 1))), nil, nil},
		{"a wait", join(wait, list(waits(look(9), 2))), nil, nil},
		{"a wait of a session that is not known", join(wait, list(waits(look(9), 77))), nil, nil},
		{"a wait that is not shown", join(wait, list(look(9))), nil, ErrWaitHidden},
		{"a wait that is not shown at first", join(wait, list(look(6))), nil, nil},
		{"a wait of another process", join(wait, long, list(waits(look(9, shown(1, 1, 8)), 1))), nil, ErrWaitHidden},
		{"an age", join(long, list(aged(2, 9, 8, true))), nil, nil},
		{"no age of another's lock", join(long, list(aged(2, 9, 0, false))), nil, nil},
		{"no age of one's own", join(long, list(aged(1, 9, 0, false))), nil, ErrWrongAge},
		{"a wrong age", join(long, list(aged(2, 9, 5, true))), nil, ErrWrongAge},
		{"an age of a lock that has ended", join(long, list(aged(2, 22, 21, true))), nil, nil},
		{"an age of a lock that ended, while its process is in trouble", join(long, list(aged(2, 26, 25, true))), []history.Fault{{Process: 1, Begin: sec(20.5), End: sec(25)}}, nil},
		{"an age of a lock that ended, long after the trouble", join(long, list(aged(2, 29, 28, true))), []history.Fault{{Process: 1, Begin: sec(20.5), End: sec(25)}}, ErrWrongAge},
		{"an age of a lock that ended long ago", join(long, list(aged(2, 24, 23, true))), nil, ErrWrongAge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Services(tt.events, Left{}, registryParams(tt.faults...)); tt.want == nil && err != nil || !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
