package campaign

import (
	"errors"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

func refusal(process int, begin, end history.Moment) history.Event {
	return history.Event{Try: &history.Try{Process: process, Key: 1, Begin: begin * ms, End: end * ms, Result: history.Held}}
}

// frozenOnce is a freeze of process 1 from 1 s to 3 s, whose key process 2 gets
// at 2.2 s.
func frozenOnce() [][]history.Event {
	return [][]history.Event{
		grant(1, 11, 900, 995, 3005, 3010, history.Lost),
		grant(2, 21, 2200, 2260, 0, 2270, history.OK),
		grant(3, 31, 2300, 2320, 0, 2330, history.OK),
		{fault(2, 1, 1000, 3000)},
		{refusal(3, 2150, 2155), refusal(3, 2050, 2055), refusal(2, 2190, 2300), refusal(1, 2180, 2185)},
	}
}

func TestClearestFreeze(t *testing.T) {
	f, err := clearestFreeze(slices.Concat(frozenOnce()...))
	if err != nil {
		t.Fatal(err)
	}
	// The frozen process's refusal and the one that outlasts the grant are left out.
	if f.lost.Lock != 11 || f.next.Lock != 21 || len(f.refused) != 2 || len(f.holds) != 3 {
		t.Errorf("got %+v", f)
	}
	longer := append(frozenOnce(),
		grant(2, 22, 9800, 9990, 12_005, 12_010, history.Lost), grant(1, 12, 11_500, 11_900, 0, 11_910, history.OK),
		[]history.Event{fault(2, 2, 10_000, 12_000)})
	if f, err := clearestFreeze(slices.Concat(longer...)); err != nil || f.lost.Lock != 22 || f.next.Lock != 12 {
		t.Errorf("got %+v, %v; want the freeze whose locks are held for longer", f, err)
	}
}

// Each change takes away what a picture needs.
func TestNoFreeze(t *testing.T) {
	tests := []struct {
		name   string
		change func(all [][]history.Event)
	}{
		{"no freeze", func(all [][]history.Event) { all[3] = []history.Event{fault(4, 1, 1000, 3000)} }},
		{"another process froze", func(all [][]history.Event) { all[3] = []history.Event{fault(2, 3, 1000, 3000)} }},
		{"it was told before it woke up", func(all [][]history.Event) { all[0] = grant(1, 11, 900, 995, 1500, 1510, history.Lost) }},
		{"nothing was lost", func(all [][]history.Event) { all[0] = grant(1, 11, 900, 995, 0, 998, history.OK) }},
		{"no other process had the key meanwhile", func(all [][]history.Event) {
			all[1], all[2] = grant(2, 21, 3200, 3260, 0, 3270, history.OK), nil
		}},
	}
	for _, tt := range tests {
		all := frozenOnce()
		tt.change(all)
		if f, err := clearestFreeze(slices.Concat(all...)); !errors.Is(err, errNoFreeze) {
			t.Errorf("%s: %+v, %v", tt.name, f, err)
		}
	}
}
