package check

import (
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// incomplete returns an error if a lock lacks its beginning or its end in the
// history. Locks of processes that faults of the rows kills ended may lack
// them.
func (rs *records) incomplete(kills []int) error {
	killed := rs.killed(kills)
	n, first := 0, (*lock)(nil)
	for _, r := range rs.keys {
		for _, l := range r.locks {
			if _, ok := killed[l.Process]; !ok && (!l.tried || !l.noted || l.Ended == 0) {
				n, first = n+1, l
			}
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d locks lack a Try, a Hold or its end, one of them lock %d of process %d", ErrMalformed, n, first.Lock, first.Process)
}

// killed returns the processes that faults of the rows kills ended, and by when.
func (rs *records) killed(kills []int) map[int]history.Moment {
	killed := map[int]history.Moment{}
	for _, f := range rs.faults {
		if slices.Contains(kills, f.Row) && f.Process != 0 { // 0: it could not be made
			killed[f.Process] = max(f.Begin, f.End)
		}
	}
	return killed
}
