package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
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
