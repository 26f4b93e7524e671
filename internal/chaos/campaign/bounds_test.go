package campaign

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
)

// Every row that something is promised about is there, and measured.
func TestBoundedRows(t *testing.T) {
	var all, promised []int
	for _, row := range faults.Rows() {
		all = append(all, row.Number)
	}
	for _, p := range bounds(time.Second) {
		promised = append(promised, p.rows...)
		if p.goal <= 0 {
			t.Errorf("rows %v have no goal", p.rows)
		}
	}
	for _, row := range slices.Concat(promised, closes, parts, notifies, kills, stops, starves, cuts) {
		if !slices.Contains(all, row) {
			t.Errorf("there is no row %d", row)
		}
	}
	for _, row := range slices.Concat(closes, parts) {
		if !slices.Contains(notifies, row) {
			t.Errorf("what row %d promises about notification is not measured", row)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(promised)))) != len(promised) {
		t.Errorf("a row is promised about twice: %v", promised)
	}
}
