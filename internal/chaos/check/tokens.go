package check

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Stored is what one fenced transaction left in the database.
type Stored struct {
	Key      int64
	N        int64 // the order of the key's commits, from a row that each of them counts up
	Timeline int64
	LSN      int64
	Lock     int64 // the holder's
	Number   int64 // the Write's
}

// Fenced checks only what the fence let through: see Sweep. With mayRise a lock
// may have a later token than before, as those of a lease table after a restart
// of the server.
func Fenced(events []history.Event, rows []Stored, mayRise bool) error {
	r := new(Report)
	tokens(r, rows, mayRise)
	writes(r, events, rows)
	return r.Err()
}

type token struct{ timeline, lsn int64 }

func (t token) compare(u token) int {
	return cmp.Or(cmp.Compare(t.timeline, u.timeline), cmp.Compare(t.lsn, u.lsn))
}

// tokens checks three rules:
//
//   - The tokens of a key never fall in the order of the commits.
//   - Each lock has one token.
//   - No two locks of a key have the same token.
func tokens(r *Report, rows []Stored, mayRise bool) {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.N, b.N))
	})
	type owned struct {
		key int64
		token
	}
	owners := map[owned]int64{}
	drawn := map[int64]token{}
	for i, row := range rows {
		t := token{row.Timeline, row.LSN}
		if i > 0 && rows[i-1].Key == row.Key {
			before := rows[i-1]
			if before.N == row.N {
				r.found(ErrOrder, 0, "%+v", row)
			}
			if t.compare(token{before.Timeline, before.LSN}) < 0 {
				r.found(ErrTokenFell, 0, "%+v", row)
			}
		}
		if first, ok := drawn[row.Lock]; ok && first != t && (!mayRise || t.compare(first) < 0) {
			r.found(ErrTokenChanged, 0, "%+v", row)
		}
		if owner, ok := owners[owned{row.Key, t}]; ok && owner != row.Lock {
			r.found(ErrTokenShared, 0, "%+v", row)
		}
		drawn[row.Lock], owners[owned{row.Key, t}] = t, row.Lock
	}
}

// writes checks that each acknowledged write is stored once, and that no refused
// one is, whether fenced or lost. One with any other result is stored at most once.
func writes(r *Report, events []history.Event, rows []Stored) {
	type write struct{ key, lock, number int64 }
	stored := map[write]int{}
	for _, row := range rows {
		stored[write{row.Key, row.Lock, row.Number}]++
	}
	for _, e := range events {
		if e.Write == nil {
			continue
		}
		switch n := stored[write{e.Write.Key, e.Write.Lock, e.Write.Number}]; e.Write.Result {
		case history.OK:
			if n != 1 {
				r.found(ErrWriteMissing, e.Write.Begin, "%d rows of %+v", n, *e.Write)
			}
		case history.Fenced, history.Lost:
			if n > 0 {
				r.found(ErrWriteStored, e.Write.Begin, "%+v", *e.Write)
			}
		default:
			if n > 1 {
				r.found(ErrWriteStored, e.Write.Begin, "%d rows of %+v", n, *e.Write)
			}
		}
	}
}
