package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
)

// Every row that has a bound exists, and is measured.
func TestBoundedRows(t *testing.T) {
	var all, bounded []int
	for _, row := range faults.Rows() {
		all = append(all, row.Number)
	}
	for _, p := range bounds(time.Second) {
		bounded = append(bounded, p.rows...)
		if p.goal <= 0 {
			t.Errorf("rows %v have no goal", p.rows)
		}
	}
	for _, row := range slices.Concat(bounded, closes, parts, notifies, kills, stops, starves, cuts) {
		if !slices.Contains(all, row) {
			t.Errorf("there is no row %d", row)
		}
	}
	for _, row := range slices.Concat(closes, parts) {
		if !slices.Contains(notifies, row) {
			t.Errorf("the bound of row %d on notification is not measured", row)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(bounded)))) != len(bounded) {
		t.Errorf("a row has two bounds: %v", bounded)
	}
}
