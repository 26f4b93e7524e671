package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Every row of a store that has a bound exists, and is measured.
func TestBoundedRows(t *testing.T) {
	every := map[int]bool{}
	for _, store := range fleet.Stores() {
		var all, bounded []int
		for _, row := range faults.Rows(store) {
			all = append(all, row.Number)
			every[row.Number] = true
		}
		p := promisesOf(store, time.Second)
		for _, b := range p.bounds {
			bounded = append(bounded, b.rows...)
			if b.goal <= 0 {
				t.Errorf("%s: rows %v have no goal", store, b.rows)
			}
		}
		for _, row := range slices.Concat(bounded, p.closes, p.parts, p.notifies, p.news) {
			if !slices.Contains(all, row) {
				t.Errorf("%s: there is no row %d", store, row)
			}
		}
		for _, row := range slices.Concat(p.closes, p.parts) {
			if !slices.Contains(p.notifies, row) {
				t.Errorf("%s: the bound of row %d on notification is not measured", store, row)
			}
		}
		if len(slices.Compact(slices.Sorted(slices.Values(bounded)))) != len(bounded) {
			t.Errorf("%s: a row has two bounds: %v", store, bounded)
		}
		if store.Leased() && (len(p.news) > 0 || p.lingers == 0) {
			t.Errorf("%s: only the lease ends a lock, so no news comes late: %+v", store, p)
		}
	}
	for _, row := range slices.Concat(kills, stops, starves, cuts) {
		if !every[row] {
			t.Errorf("there is no row %d", row)
		}
	}
}

// On a busy machine all may take longer. What has nothing to do with time is a
// violation on any machine.
func TestBusy(t *testing.T) {
	cut := grant(1, 11, 10, 890, 900, 910, history.Lost)
	refused := func(process int, begin, end history.Moment) []history.Event {
		return []history.Event{{Try: &history.Try{Process: process, Key: 1, Begin: begin * ms, End: end * ms, Result: history.Held}}}
	}
	for _, tt := range []struct {
		name   string
		events [][]history.Event
		time   bool // that alone is wrong
	}{
		{"a key is free too late", [][]history.Event{cut, grant(2, 20, 2250, 2300, 0, 2310, history.OK), refused(3, 2200, 2201)}, true},
		{"a holder is told too late", [][]history.Event{cut, onKey(2, grant(2, 21, 2000, 3010, 3150, 3160, history.Lost))}, true},
		{"a holder that relies on its context is told too late", [][]history.Event{
			cut, onKey(2, grant(2, 21, 2000, 3010, 3012, 3014, history.Lost)), onKey(3, grant(2, 22, 2000, 3010, 3012, 3014, history.Lost)),
			onKey(4, listens(grant(2, 23, 2000, 3010, 3150, 3160, history.Lost))),
		}, true},
		{"the news comes too late", [][]history.Event{
			cut, onKey(2, grant(2, 21, 2000, 3290, 3300, 3310, history.Lost)), onKey(2, grant(3, 31, 3100, 3500, 0, 3510, history.OK)),
		}, true},
		{"a call takes too long", [][]history.Event{cut, onKey(2, asked(5000, grant(3, 31, 6300, 6310, 0, 6320, history.OK)))}, true},
		{"a holder outlives the lease without a notice", [][]history.Event{
			cut, onKey(2, grant(2, 21, 2000, 3950, 3960, 3970, history.Lost)), onKey(2, grant(3, 31, 3100, 3980, 0, 3990, history.OK)),
		}, false},
		{"an effect after the next grant", [][]history.Event{grant(1, 11, 10, 1180, 1190, 1195, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK)}, false},
		{"told after the next grant", [][]history.Event{grant(1, 11, 10, 890, 1190, 1195, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK)}, false},
		{"two locks, and no fault that would excuse it", [][]history.Event{grant(3, 31, 10, 50, 0, 60, history.OK), grant(4, 41, 20, 40, 0, 45, history.OK)}, false},
	} {
		r, err := results(t, tt.events...)
		if err == nil {
			t.Errorf("%s: no violation on an idle machine", tt.name)
		}
		r.busy = time.Second
		if err := r.evaluate(r.events); (err == nil) != tt.time {
			t.Errorf("%s: on a busy machine %v", tt.name, err)
		}
	}
}
